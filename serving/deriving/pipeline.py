"""A pipeline made of a model and a front half: two configurations and version 1 of each."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace

from tritonclient.grpc import model_config_pb2 as schema

from serving.errors import ModelError
from serving.fronthalf import FrontHalf, Payload
from serving.models.config import ModelConfig, render
from serving.models.pipeline import write_pipeline
from serving.models.repository import Model
from serving.models.variants.parameters import read_record
from serving.models.zoo import ENTRIES
from serving.models.zoo.build import ensure_built

_WHAT = {"jpeg": "JPEG files of any size", "uint8": "RGB pixels of {width} x {height}, 8 bits each"}


def known_front(model: Model, payload: Payload) -> FrontHalf | None:
    """What the zoo knows of a model or of the parent of a variant; ``None`` for others."""
    record = read_record(model.config)
    entry = ENTRIES.get(record.of if record else model.name)
    return replace(entry.front, payload=payload) if entry and entry.front else None


def make_pipeline(model: Model, front: FrontHalf, progress: Callable[[str], None]) -> Model:
    """Write ``<model>_<payload>`` and its front half beside ``model``; nothing stays when it fails.

    Raises:
        ModelError: the model does not take such tensors, or a model of that name exists.
    """
    _require_fit(model.config, front)
    step, ensemble = write_pipeline(f"{model.name}_{front.payload}", model.config, front)
    pipeline = Model(model.root, ensemble.name)
    made = [Model(model.root, step.name), pipeline]
    for one in made:
        if one.folder.exists():
            raise ModelError(
                f"there is a model {one.name!r} in {one.root}",
                hint="Remove its folder, or use it as it is.",
            )
    what = _WHAT[front.payload].format(width=front.width, height=front.height)
    try:
        _write(made[0], f"The front half of {pipeline.name}: {what}", step)
        _write(pipeline, f"{model.name} behind its front half: {what}", ensemble)
        ensure_built(pipeline, progress)
    except BaseException:
        for one in made:
            shutil.rmtree(one.folder, ignore_errors=True)
        raise
    return pipeline


def _write(model: Model, comment: str, message: schema.ModelConfig) -> None:
    how = f"`infersweep models build {model.name}` makes version 1."
    model.folder.mkdir()
    (model.folder / "config.pbtxt").write_text(
        f"# {comment}.\n# {how}\n{render(message)}", encoding="utf-8"
    )


def _require_fit(config: ModelConfig, front: FrontHalf) -> None:
    size = (front.depth, front.height, front.width)
    tensor = config.inputs[0]
    fits = (
        len(config.inputs) == 1
        and tensor.datatype == "FP32"
        and len(tensor.dims) == 3
        and all(want in (-1, have) for want, have in zip(tensor.dims, size, strict=True))
    )
    if not fits or not config.batched or config.pipeline or config.front:
        taken = ", ".join(
            f"{spec.datatype} {list(config.wire_dims(spec))}" for spec in config.inputs
        )
        raise ModelError(
            f"model {config.name!r} takes {taken}, and a front half gives FP32 {[-1, *size]}",
            hint="State its size and channels, or write the ensemble by hand for Triton alone.",
        )
