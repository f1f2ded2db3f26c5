"""PyTorch modules and TorchScript files, exported to ONNX and compared with themselves."""

from __future__ import annotations

import importlib
import inspect
import sys
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from serving.errors import ModelError, UsageError
from serving.importing.real_inputs import sample_files
from serving.importing.request import Examples, Produced, SourceFile
from serving.models.inspection import inspect as graph_of
from serving.models.stored_samples import load
from serving.protocol import NUMPY_TYPES, Array
from serving.rows import Arrays

_BATCH_AXIS = "batch"
_ROWS = 2
"""``torch.export`` takes a length of 1 for a fixed one."""
_BF16 = np.dtype(NUMPY_TYPES["BF16"])


@dataclass(frozen=True)
class TorchModule:
    """Attributes: ``spec`` is ``module:factory``; the factory takes nothing and makes a module."""

    spec: str

    @property
    def label(self) -> str:
        return self.spec

    @property
    def stem(self) -> str:
        return self.spec.rpartition(":")[2]

    def produce(self, folder: Path, examples: Examples) -> Produced:
        """Export it with ``torch.export``.

        Raises:
            UsageError: there is no such factory, or nothing says what its inputs are.
            ModelError: it cannot be made, run or exported.
        """
        module = _made(self.spec)
        parameters = inspect.signature(module.forward).parameters.values()
        names = [p.name for p in parameters if p.default is p.empty and p.kind < p.VAR_POSITIONAL]
        return _Export(module, names, _example_arrays(names, examples)).write(
            folder / "exported.onnx", batched=examples.batched
        )


@dataclass(frozen=True)
class TorchScriptFile(SourceFile):
    """What ``torch.jit.save`` wrote."""

    def produce(self, folder: Path, examples: Examples) -> Produced:
        """Export it with the exporter that reads TorchScript.

        Raises:
            UsageError: nothing says what its inputs are.
            ModelError: it is no TorchScript, or cannot be run or exported.
        """
        import torch  # noqa: PLC0415  (a second of start-up that other models do not need)

        try:
            with warnings.catch_warnings():
                # TorchScript is deprecated, which is no news to whoever has such a file.
                warnings.simplefilter("ignore")
                module = torch.jit.load(self.path, map_location="cpu").eval()  # type: ignore[no-untyped-call]
        except (RuntimeError, ValueError) as error:
            raise ModelError(
                f"{self.path} is no TorchScript file: {_first_line(error)}",
                hint="Weights alone make no model: give --torch module:factory instead.",
            ) from None
        stated = module.forward.schema.arguments[1:]
        names = [argument.name for argument in stated if not argument.has_default_value()]
        return _Export(module, names, _example_arrays(names, examples), script=True).write(
            folder / "exported.onnx", batched=examples.batched
        )


@dataclass(frozen=True)
class _Export:
    """Attributes: ``arrays`` are example inputs, by the names of the module's parameters."""

    module: Any
    names: Sequence[str]
    arrays: Arrays
    script: bool = False

    def write(self, file: Path, *, batched: bool) -> Produced:
        """Export with a free batch axis; where that fails, with fixed axes, and say so."""
        import torch  # noqa: PLC0415

        outputs = list(self.run(self.arrays))
        why_fixed = "as was asked for"
        if batched:
            why_fixed = self._attempt(file, outputs, batched=True) or _fixed_axis(file)
        if why_fixed:
            why = self._attempt(file, outputs, batched=False)
            if why:
                raise ModelError(
                    f"the module cannot be exported: {why}",
                    hint="Export it yourself with torch.onnx.export, and give the file.",
                )
        axes = f"all axes fixed, {why_fixed}" if why_fixed else "a free batch axis"
        return Produced(file, self.run, (f"exported by PyTorch {torch.__version__} with {axes}",))

    def run(self, inputs: Arrays) -> dict[str, Array]:
        """The module's own answers, by output.

        Raises:
            ModelError: it does not run, or gives something else than tensors.
        """
        import torch  # noqa: PLC0415

        try:
            with torch.inference_mode():
                answer = self.module(*(_to_tensor(inputs[name]) for name in self.names))
        except Exception as error:
            raise ModelError(
                f"the module does not run on its inputs: {_first_line(error)}",
                hint="Give inputs that fit with --sample-inputs.",
            ) from None
        return {name: _to_array(tensor) for name, tensor in _named(answer)}

    def _attempt(self, file: Path, outputs: Sequence[str], *, batched: bool) -> str:
        """Why it failed; empty when ``file`` is written."""
        import torch  # noqa: PLC0415

        rows = _ROWS if batched else 1
        tensors = [_to_tensor(np.concatenate([self.arrays[name]] * rows)) for name in self.names]
        export = _export_script if self.script else _export_module
        try:
            with warnings.catch_warnings(), torch.inference_mode():
                # Both exporters warn at length of what their own next release will do.
                warnings.simplefilter("ignore")
                export(self.module, tensors, file, self.names, outputs, batched)
        except Exception as error:
            # The exporters raise what they like.
            return _first_line(error)
        return ""


def _fixed_axis(file: Path) -> str:
    """Why a file that was to have a free batch axis has none; empty when it has."""
    for tensor in graph_of(file).inputs:
        if tensor.dims and isinstance(tensor.dims[0], int):
            return f"since the exporter fixes the first axis of {tensor.name!r}"
    return ""


def _export_module(
    module: Any,
    tensors: Sequence[Any],
    file: Path,
    names: Sequence[str],
    outputs: Sequence[str],
    batched: bool,
) -> None:
    import torch  # noqa: PLC0415

    axis = torch.export.Dim(_BATCH_AXIS)
    program = torch.onnx.export(
        module,
        tuple(tensors),
        dynamo=True,
        input_names=list(names),
        output_names=list(outputs),
        dynamic_shapes=tuple({0: axis} for _ in names) if batched else None,
        verbose=False,
    )
    assert program is not None
    # Weights go into a file beside it when they would not fit into one message.
    program.save(str(file))


def _export_script(
    module: Any,
    tensors: Sequence[Any],
    file: Path,
    names: Sequence[str],
    outputs: Sequence[str],
    batched: bool,
) -> None:
    import torch  # noqa: PLC0415

    torch.onnx.export(
        module,
        tuple(tensors),
        str(file),
        dynamo=False,
        input_names=list(names),
        output_names=list(outputs),
        dynamic_axes={name: {0: _BATCH_AXIS} for name in (*names, *outputs)} if batched else None,
    )


def _made(spec: str) -> Any:
    """The module in eval mode.

    Raises:
        UsageError: there is no such factory, or it makes something else.
        ModelError: it failed.
    """
    from torch import nn  # noqa: PLC0415

    place, _, factory = spec.partition(":")
    if not place or not factory:
        raise UsageError(f"--torch {spec!r}", hint="Write module:factory, such as nets:build.")
    # As other servers do that load an application by name.
    sys.path.insert(0, str(Path.cwd()))
    try:
        make = getattr(importlib.import_module(place), factory)
    except (ImportError, AttributeError) as error:
        raise UsageError(
            f"--torch {spec!r}: {error}", hint="It is imported from here or the Python path."
        ) from None
    finally:
        sys.path.pop(0)
    try:
        module = make()
    except Exception as error:
        raise ModelError(
            f"{spec} fails: {type(error).__name__}: {_first_line(error)}",
            hint="It is called without arguments and must make the module, weights and all.",
        ) from None
    if not isinstance(module, nn.Module):
        raise UsageError(
            f"--torch {spec!r} makes a {type(module).__name__}", hint="It must make an nn.Module."
        )
    return module.eval()


def _example_arrays(names: Sequence[str], examples: Examples) -> dict[str, Array]:
    """One example of each input: the first sample, or float32 numbers of a given shape.

    Raises:
        UsageError: an input has neither.
    """
    given: Mapping[str, Array] = {}
    if examples.samples is not None:
        given = load(sample_files(examples.samples)[0], names[0])
    rng = np.random.default_rng(1)
    arrays = {}
    for name in names:
        if name in given:
            arrays[name] = given[name]
        elif name in examples.shapes:
            arrays[name] = rng.standard_normal(examples.shapes[name]).astype(np.float32)
        else:
            raise UsageError(
                f"nothing says what input {name!r} of the module looks like",
                hint=f"Give --input-shape '{name}=1,3,224,224' for float32, or --sample-inputs.",
            )
    return arrays


def _named(answer: object) -> Iterator[tuple[str, Any]]:
    """Every tensor of an answer by name: its own in a dictionary, a number in a tuple."""
    import torch  # noqa: PLC0415

    if isinstance(answer, torch.Tensor):
        parts: list[tuple[str, object]] = [("output", answer)]
    elif isinstance(answer, Mapping):
        parts = [(str(name), part) for name, part in answer.items()]
    elif isinstance(answer, (tuple, list)):
        parts = [(f"output_{index}", part) for index, part in enumerate(answer)]
    else:
        parts = [("output", answer)]
    for name, part in parts:
        if not isinstance(part, torch.Tensor):
            raise ModelError(
                f"the module answers with a {type(part).__name__} where a tensor should be",
                hint="Wrap it in a module that answers with a tensor, a tuple or a dictionary.",
            )
        yield name, part


def _to_tensor(array: Array) -> Any:
    import torch  # noqa: PLC0415

    if array.dtype == _BF16:
        return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
    # PyTorch wants memory that it may write to.
    return torch.from_numpy(np.array(array))


def _to_array(tensor: Any) -> Array:
    import torch  # noqa: PLC0415

    if tensor.dtype == torch.bfloat16:
        bits: Array = tensor.view(torch.int16).numpy()
        return bits.view(_BF16)
    array: Array = tensor.numpy()
    return array


def _first_line(error: Exception) -> str:
    """Of an error that may be pages long; its first sentence at most."""
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return lines[0].partition(". ")[0].rstrip(".")
