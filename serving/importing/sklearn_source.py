"""Fitted scikit-learn pipelines, converted by skl2onnx and compared with themselves.

skl2onnx is an optional extra; without it such a file is refused.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from serving.errors import MachineError, ModelError, UsageError
from serving.importing.real_inputs import sample_files
from serving.importing.request import Examples, Produced, SourceFile
from serving.models.inspection import GraphTensor, describe
from serving.models.stored_samples import load
from serving.protocol import NUMPY_TYPES, Array
from serving.rows import Arrays

_MATRIX = "X"
_TYPES: Mapping[str, str] = {
    "f4": "FloatTensorType",
    "f8": "DoubleTensorType",
    "i4": "Int32TensorType",
    "i8": "Int64TensorType",
    "b1": "BooleanTensorType",
}
_METHODS: Mapping[str, tuple[str, ...]] = {
    "label": ("predict",),
    "probabilities": ("predict_proba", "decision_function"),
    "variable": ("predict", "transform"),
    "scores": ("transform", "decision_function"),
}
"""What skl2onnx calls an output, and the methods of which the first that is there gives it."""
_OPSETS: Mapping[str, int] = {"": 17, "ai.onnx.ml": 3}
"""For which every converter is written."""


@dataclass(frozen=True)
class SklearnFile(SourceFile):
    """A pipeline that joblib or pickle wrote. Loading it runs what is in it."""

    def produce(self, folder: Path, examples: Examples) -> Produced:
        """Convert it; dictionaries of probabilities become a plain tensor.

        Raises:
            MachineError: skl2onnx is not installed.
            UsageError: a sample shows no columns that it can have.
            ModelError: it cannot be read or converted.
        """
        skl2onnx = _required("skl2onnx")
        pipeline = self._read()
        columns = _examples(pipeline, examples)
        try:
            graph = _converted(skl2onnx, pipeline, _types(columns))
        except Exception as error:
            # skl2onnx raises what its converters raise.
            reason = str(error).strip().partition("\n")[0].rstrip(".")
            raise ModelError(
                f"{self.path} cannot be converted: {reason}",
                hint="Give --sample-inputs with an array [rows, 1] for each column where these "
                "differ in kind; or convert it yourself, and give the ONNX file.",
            ) from None
        file = folder / "converted.onnx"
        file.write_bytes(graph.SerializeToString())
        original = _Original(pipeline, tuple(columns), describe(graph).outputs)
        return Produced(file, original.run, (f"converted by skl2onnx {skl2onnx.__version__}",))

    def _read(self) -> Any:
        try:
            pipeline = _required("joblib").load(self.path)
        except FileNotFoundError:
            raise ModelError(f"{self.path} does not exist", hint="Give a file's path.") from None
        except Exception as error:
            # What is unpickled may raise anything.
            raise ModelError(
                f"{self.path} cannot be read: {type(error).__name__}: {error}",
                hint="Write it with joblib.dump under the scikit-learn that is installed here.",
            ) from None
        if not hasattr(pipeline, "n_features_in_"):
            raise ModelError(
                f"{self.path} holds a {type(pipeline).__name__}, no fitted pipeline",
                hint="Fit it before it is written.",
            )
        return pipeline


@dataclass(frozen=True)
class _Original:
    """Attributes: ``outputs`` are the graph's, which this answers with the pipeline itself."""

    pipeline: Any
    columns: tuple[str, ...]
    outputs: tuple[GraphTensor, ...]

    def run(self, inputs: Arrays) -> dict[str, Array]:
        """The outputs that scikit-learn has a method for."""
        given = self._given(inputs)
        found: dict[str, Array] = {}
        for tensor in self.outputs:
            for method in _METHODS.get(tensor.name, ()):
                if hasattr(self.pipeline, method):
                    answer = _asked(getattr(self.pipeline, method), given)
                    found[tensor.name] = _as_output(answer, tensor)
                    break
        return found

    def _given(self, inputs: Arrays) -> Any:
        arrays = {name: _as_column(inputs[name]) for name in self.columns}
        if len(arrays) == 1:
            return next(iter(arrays.values()))
        table = {name: array[:, 0] for name, array in arrays.items()}
        return _required("pandas").DataFrame(table)


def _required(module: str) -> Any:
    try:
        return importlib.import_module(module)
    except ImportError:
        raise MachineError(
            f"a scikit-learn pipeline needs {module}, which is not installed",
            hint="Install it with `pip install 'infersweep[sklearn]'`, or give an ONNX file.",
        ) from None


def _converted(skl2onnx: Any, pipeline: Any, types: list[tuple[str, Any]]) -> Any:
    """The graph; probabilities as a plain tensor where the converter would make a dictionary."""
    plain = {id(pipeline): {"zipmap": False}} if hasattr(pipeline, "classes_") else None
    told = {"initial_types": types, "target_opset": dict(_OPSETS)}
    try:
        return skl2onnx.convert_sklearn(pipeline, options=plain, **told)
    except NameError:
        # Its word for an option that a converter does not have, for want of a dictionary.
        return skl2onnx.convert_sklearn(pipeline, **told)


def _examples(pipeline: Any, examples: Examples) -> dict[str, Array]:
    """One example of each input: the arrays of a sample, else one matrix of float32."""
    if examples.samples is not None:
        return load(sample_files(examples.samples)[0], _MATRIX)
    return {_MATRIX: np.zeros((1, pipeline.n_features_in_), np.float32)}


def _types(columns: Mapping[str, Array]) -> list[tuple[str, Any]]:
    """What skl2onnx calls the inputs' types, of any number of rows.

    Raises:
        UsageError: an input has another number of axes, or a type that skl2onnx has no name for.
    """
    kinds = _required("skl2onnx.common.data_types")
    types = []
    for name, array in columns.items():
        kind = "StringTensorType" if array.dtype.kind in "SU" else _TYPES.get(array.dtype.str[1:])
        if array.ndim != 2 or kind is None:
            raise UsageError(
                f"sample input {name!r} is {array.dtype} {list(array.shape)}",
                hint="Give rows by columns: numbers of 32 or 64 bits, booleans, or text.",
            )
        types.append((name, getattr(kinds, kind)([None, array.shape[1]])))
    return types


def _asked(method: Callable[[Any], Any], given: Any) -> Array:
    """Raises ModelError when the pipeline does not run on its inputs."""
    try:
        try:
            return np.asarray(method(given))
        except ValueError:
            # A few estimators take nothing but the type that they were fitted on.
            return np.asarray(method(np.asarray(given, np.float64)))
    except Exception as error:
        raise ModelError(
            f"the pipeline does not run on its inputs: {error}",
            hint="Give inputs that fit with --sample-inputs.",
        ) from None


def _as_column(array: Array) -> Array:
    """Text as scikit-learn knows it."""
    if array.dtype.kind != "O":
        return array
    return np.asarray(np.frompyfunc(bytes.decode, 1, 1)(array))


def _as_output(answer: Array, tensor: GraphTensor) -> Array:
    """scikit-learn computes in double and answers with a flat array; the graph does neither."""
    if tensor.dims and len(tensor.dims) == 2:
        answer = answer.reshape(len(answer), -1)
    if tensor.datatype == "BYTES":
        return np.asarray(np.frompyfunc(lambda text: str(text).encode(), 1, 1)(answer))
    return answer.astype(NUMPY_TYPES[tensor.datatype])
