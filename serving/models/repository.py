"""The model repository: one folder per model in Triton's layout, read by every backend.

``<root>/<model>/config.pbtxt`` beside ``<root>/<model>/<version>/model.onnx``.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from google.protobuf import json_format

from serving.errors import ModelError
from serving.models.config import ModelConfig, load_config, load_message, render, with_placement
from serving.models.weights import sha256_of

DEFAULT_ROOT = Path(__file__).resolve().parents[2] / "model_repository"
MODEL_FILE = "model.onnx"


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
        """Raises ModelError when ``config.pbtxt`` cannot be used."""
        return load_config(self.folder / "config.pbtxt")

    @property
    def versions(self) -> tuple[int, ...]:
        """Versions that hold a model file, oldest first."""
        found = (
            int(child.name)
            for child in self.folder.iterdir()
            if child.name.isdecimal() and (child / MODEL_FILE).is_file()
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
        return self.folder / str(self.version) / MODEL_FILE

    @property
    def is_built(self) -> bool:
        return bool(self.versions)

    def sha256(self) -> str:
        """Checksum of the newest model file, in hexadecimal."""
        return sha256_of(self.file)


def describe_configuration(model: Model) -> dict[str, Any]:
    """The answer to a model configuration request: ``config.pbtxt`` as JSON, every field."""
    described: dict[str, Any] = json_format.MessageToDict(
        load_message(model.folder / "config.pbtxt"),
        preserving_proto_field_name=True,
        always_print_fields_with_no_presence=True,
    )
    return described


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


def place(model: Model, root: Path, *, instances: int, intra_op_threads: int) -> Model:
    """Write a repository at ``root`` that serves ``model`` with the given instances and threads.

    Only ``config.pbtxt`` is new; the version folders are links to those of ``model``, so every
    backend loads the very same file. What was served stays readable beside the results.
    """
    placed = Model(root, model.name)
    placed.folder.mkdir(parents=True, exist_ok=True)
    message = with_placement(
        load_message(model.folder / "config.pbtxt"),
        instances=instances,
        intra_op_threads=intra_op_threads,
    )
    (placed.folder / "config.pbtxt").write_text(render(message), encoding="utf-8")
    for version in model.versions:
        link = placed.folder / str(version)
        if not link.exists():
            link.symlink_to((model.folder / str(version)).resolve(), target_is_directory=True)
    return placed
