"""The model repository: one folder per model in Triton's layout, read by every backend.

``<root>/<model>/config.pbtxt`` beside ``<root>/<model>/<version>/model.onnx``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from google.protobuf.message import Message
from tritonclient.grpc import model_config_pb2 as schema

from serving.errors import ModelError
from serving.models.config import ModelConfig, load_config, load_message, render, with_placement
from serving.models.pipeline import why_apart
from serving.models.weights import sha256_of

DEFAULT_ROOT = Path(__file__).resolve().parents[2] / "model_repository"
MODEL_FILE = "model.onnx"
STEP_FILE = "picture.py"
"""What a front half has in place of a graph."""


@dataclass(frozen=True)
class Model:
    """One model folder.

    Attributes:
        root: the repository the model lies in.
        name: the folder's name, which is the model's name.
    """

    root: Path
    name: str

    @property
    def folder(self) -> Path:
        return self.root / self.name

    @cached_property
    def config(self) -> ModelConfig:
        """That of a pipeline states instances, threads and batching of the model behind it.

        Raises:
            ModelError: ``config.pbtxt`` cannot be used, or the steps of a pipeline do not fit.
        """
        config = load_config(self.folder / "config.pbtxt")
        if config.pipeline is None:
            return config
        front = load_config(self.root / config.pipeline.front / "config.pbtxt")
        if front.front is None:
            # A chain of two models, which Triton alone can serve.
            unserved = (*config.unserved, "ensemble_scheduling")
            return replace(config, pipeline=None, unserved=unserved)
        model = load_config(self.root / config.pipeline.model / "config.pbtxt")
        why = why_apart(config, front, model)
        if why:
            raise ModelError(
                f"model {self.name!r} is no pipeline of a front half and a model: {why}",
                hint=f"Make it with `infersweep models pipeline {model.name}`.",
            )
        batching = model.dynamic_batching
        return replace(config, execution=model.execution, dynamic_batching=batching)

    @property
    def front(self) -> Model | None:
        """The model that prepares the pictures of a pipeline; ``None`` for other models."""
        pipeline = self.config.pipeline
        return Model(self.root, pipeline.front) if pipeline else None

    @property
    def computed(self) -> Model:
        """The model behind the front half of a pipeline; other models are that themselves."""
        pipeline = self.config.pipeline
        return Model(self.root, pipeline.model) if pipeline else self

    @property
    def steps(self) -> tuple[Model, ...]:
        """The front half of a pipeline and the model behind it; none of other models."""
        return (self.front, self.computed) if self.front else ()

    @property
    def names(self) -> tuple[str, ...]:
        """Those under which a server tells of it: its own, and those of its steps."""
        return (self.name, *(step.name for step in self.steps))

    @property
    def versions(self) -> tuple[int, ...]:
        """Versions that hold a model file, oldest first."""
        found = (
            int(child.name)
            for child in self.folder.iterdir()
            if child.name.isdecimal()
            and any((child / name).is_file() for name in (MODEL_FILE, STEP_FILE))
        )
        return tuple(sorted(found))

    @property
    def version(self) -> int:
        """The newest version.

        Raises:
            ModelError: no version has been built.
        """
        versions = self.versions
        if not versions:
            raise ModelError(
                f"model {self.name!r} in {self.root} has no {MODEL_FILE}",
                hint=f"Build it with `infersweep models build {self.name}`.",
            )
        return versions[-1]

    @property
    def file(self) -> Path:
        return self.file_of(self.version)

    def file_of(self, version: int) -> Path:
        """Where the model file of ``version`` lies; for a pipeline, a link to its model's file."""
        folder = self.folder / str(version)
        step = folder / STEP_FILE
        return step if step.is_file() else folder / MODEL_FILE

    @property
    def is_built(self) -> bool:
        return bool(self.versions)

    def sha256(self) -> str:
        """Checksum of the newest model file, in hexadecimal."""
        return sha256_of(self.file)


def describe_configuration(model: Model) -> dict[str, Any]:
    """The answer to a model configuration request: ``config.pbtxt`` as JSON, every field."""
    return _plain(load_message(model.folder / "config.pbtxt"))


def _plain(message: Message) -> dict[str, Any]:
    """A message as JSON; protobuf's own mapping writes 64-bit numbers as text, clients do not."""
    described: dict[str, Any] = {}
    for field in message.DESCRIPTOR.fields:
        value = getattr(message, field.name)
        if field.message_type is None:
            described[field.name] = _scalar(field, value)
        elif field.message_type.GetOptions().map_entry:
            inner = field.message_type.fields_by_name["value"]
            described[field.name] = {
                str(key): _plain(value[key]) if inner.message_type else _scalar(inner, value[key])
                for key in value
            }
        elif field.is_repeated:
            described[field.name] = [_plain(item) for item in value]
        elif message.HasField(field.name):
            described[field.name] = _plain(value)
    return described


def _scalar(field: Any, value: Any) -> Any:
    if field.is_repeated:
        return [_word(field, item) for item in value]
    return _word(field, value)


def _word(field: Any, value: Any) -> Any:
    return field.enum_type.values_by_number[value].name if field.enum_type else value


def list_models(root: Path = DEFAULT_ROOT) -> tuple[Model, ...]:
    """Every folder under ``root`` that has a ``config.pbtxt``, by name."""
    return tuple(Model(root, path.parent.name) for path in sorted(root.glob("*/config.pbtxt")))


def find_model(name: str, root: Path = DEFAULT_ROOT) -> Model:
    """The model called ``name``.

    Raises:
        ModelError: there is none; the message lists those that are there.
    """
    models = {model.name: model for model in list_models(root)}
    if name not in models:
        known = ", ".join(models) or "none"
        raise ModelError(
            f"there is no model {name!r} in {root}", hint=f"Models found there: {known}."
        )
    return models[name]


def place(
    model: Model,
    root: Path,
    *,
    instances: int,
    intra_op_threads: int,
    edit: Callable[[schema.ModelConfig], None] | None = None,
) -> Model:
    """Write a repository at ``root`` that serves ``model`` with the given instances and threads.

    ``edit`` may change more of the configuration.

    Only ``config.pbtxt`` is new; the version folders are links to those of ``model``, so every
    backend loads the very same file. What was served stays readable beside the results. Of a
    pipeline all three models are placed: what is stated and edited is that of the model behind it,
    and its front half has as many instances.
    """
    if model.front is not None:
        behind = place(
            model.computed,
            root,
            instances=instances,
            intra_op_threads=intra_op_threads,
            edit=edit,
        )
        _place_step(model.front, root, behind.config)
        return _place_step(model, root, behind.config)
    message = with_placement(
        load_message(model.folder / "config.pbtxt"),
        instances=instances,
        intra_op_threads=intra_op_threads,
    )
    if edit is not None:
        edit(message)
    return _write(model, root, message)


def _place_step(model: Model, root: Path, behind: ModelConfig) -> Model:
    """A part of a pipeline, with the instances and rows of the model ``behind`` it."""
    message = load_message(model.folder / "config.pbtxt")
    message.max_batch_size = min(message.max_batch_size, behind.max_batch_size)
    for group in message.instance_group:
        group.count = behind.instances
    return _write(model, root, message)


def _write(model: Model, root: Path, message: schema.ModelConfig) -> Model:
    placed = Model(root, model.name)
    placed.folder.mkdir(parents=True, exist_ok=True)
    (placed.folder / "config.pbtxt").write_text(render(message), encoding="utf-8")
    for version in model.versions:
        link = placed.folder / str(version)
        if not link.exists():
            link.symlink_to((model.folder / str(version)).resolve(), target_is_directory=True)
    return placed
