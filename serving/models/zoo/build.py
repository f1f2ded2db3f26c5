"""Build a model of the zoo: fetch weights, write ``model.onnx``, see that answers are right."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from serving.errors import ModelError
from serving.fronthalf import STEP_FILES
from serving.models.inspection import differences, inspect
from serving.models.pipeline import require_known_form
from serving.models.repository import MODEL_FILE, Model
from serving.models.weights import fetch
from serving.models.zoo import ENTRIES
from serving.models.zoo.bare_session import open_bare
from serving.models.zoo.entry import ZooEntry

if TYPE_CHECKING:
    from torch import nn

_VERSION = "1"


def ensure_built(model: Model, progress: Callable[[str], None]) -> None:
    """Build ``model`` unless it is there; of a pipeline, the model behind it and its front half.

    Raises:
        ModelError: it is not in the zoo and has no file, or its answers are wrong.
        FetchError: its weights could not be fetched.
    """
    require_known_form(model.config)
    if model.config.front is not None:
        _write_step(model)
    if model.front is not None:
        ensure_built(model.computed, progress)
        _write_step(model.front)
        _link_file(model)
    if model.is_built:
        return
    if model.name not in ENTRIES:
        parent = model.config.parameters.get("variant_of")
        own = f"Put your file at {model.folder / _VERSION / MODEL_FILE}."
        raise ModelError(
            f"model {model.name!r} has no {MODEL_FILE} and is not in the zoo",
            hint=f"Make it with `infersweep models variant {parent}`." if parent else own,
        )
    build(ENTRIES[model.name], model, progress)


def build(entry: ZooEntry, model: Model, progress: Callable[[str], None]) -> None:
    """Write version 1 of ``model``; nothing is left behind when a check fails.

    Raises:
        ModelError: graph and configuration disagree, or an answer is wrong.
        FetchError: the weights could not be fetched.
    """
    weights = fetch(entry.weights, progress)
    progress(f"building {entry.name}: {entry.summary}")
    target = model.folder / _VERSION / MODEL_FILE
    target.parent.mkdir(parents=True, exist_ok=True)
    part = target.with_suffix(f".{os.getpid()}.part")
    try:
        entry.build(weights, part)
        _require_right(entry, model, part)
        part.replace(target)
    finally:
        part.unlink(missing_ok=True)


def _write_step(front: Model) -> None:
    """Version 1 of a front half: copies of this version's code, for Triton's Python stub."""
    folder = front.folder / _VERSION
    folder.mkdir(parents=True, exist_ok=True)
    for name, source in STEP_FILES.items():
        target, text = folder / name, source.read_bytes()
        if not target.is_file() or target.read_bytes() != text:
            part = target.with_suffix(f".{os.getpid()}.part")
            part.write_bytes(text)
            part.replace(target)


def _link_file(pipeline: Model) -> None:
    """Version 1 of a pipeline, which holds a link to its model's newest file and nothing else."""
    link = pipeline.folder / _VERSION / MODEL_FILE
    target = Path("..") / ".." / pipeline.computed.file.relative_to(pipeline.root)
    link.parent.mkdir(parents=True, exist_ok=True)
    if link.is_symlink() and link.readlink() == target:
        return
    part = link.with_suffix(f".{os.getpid()}.part")
    part.symlink_to(target)
    part.replace(link)


def load_torch_module(name: str) -> nn.Module:
    """The zoo model ``name`` as a PyTorch module in eval mode.

    Raises:
        ModelError: it exists as ONNX only, or is not in the zoo.
    """
    entry = ENTRIES.get(name)
    if entry is None or entry.torch_module is None:
        raise ModelError(
            f"model {name!r} exists as ONNX only", hint="Serve it with another engine."
        )
    return entry.torch_module(fetch(entry.weights, lambda _: None))


def _require_right(entry: ZooEntry, model: Model, file: Path) -> None:
    found = differences(inspect(file), model.config)
    if found:
        raise ModelError(
            f"{model.name}: graph and config.pbtxt disagree: {'; '.join(found)}",
            hint="Mend config.pbtxt.",
        )
    session = open_bare(file)
    names = [spec.name for spec in model.config.outputs]
    for name, inputs in entry.samples().items():
        outputs = dict(zip(names, session.run(names, dict(inputs)), strict=True))
        fault = entry.fault(name, outputs)
        if fault:
            raise ModelError(
                f"{model.name} answers wrongly: {fault}",
                hint="The weights or the runtime are not those that were pinned.",
            )
