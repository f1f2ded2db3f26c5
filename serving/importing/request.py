"""What a user asks to be added: from where, under which name, and how."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from serving.errors import ModelError, UsageError
from serving.importing.axes import Shape
from serving.importing.trying import Wanted
from serving.models.repository import Model
from serving.models.zoo import ENTRIES
from serving.rows import Run

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")
_UNSAFE = re.compile(r"[^A-Za-z0-9_.-]+")


@dataclass(frozen=True)
class Examples:
    """What is known of a model's inputs before there is a graph.

    Attributes:
        samples: a file or folder of real ones.
        shapes: by input, batch axis included.
        batched: whether the first axis of every input is to count rows.
    """

    samples: Path | None
    shapes: Mapping[str, Shape]
    batched: bool


@dataclass(frozen=True)
class Produced:
    """An ONNX file, and what it was made from.

    Attributes:
        original: answers of the model it was made from, by output; ``None`` for a file that was
            ONNX from the start.
        remarks: what was done on the way, a line each.
    """

    file: Path
    original: Run | None = None
    remarks: tuple[str, ...] = ()


class Source(Protocol):
    """Where a model comes from."""

    @property
    def label(self) -> str:
        """For messages: a file's name, or what was written on the command line."""
        ...

    @property
    def stem(self) -> str:
        """What the model's name is made from, where none is given."""
        ...

    def produce(self, folder: Path, examples: Examples) -> Produced:
        """An ONNX file; what must be written goes into ``folder``.

        Raises:
            InfersweepError: it cannot be made.
        """
        ...


@dataclass(frozen=True)
class SourceFile:
    """What sources that are one file have in common."""

    path: Path

    @property
    def label(self) -> str:
        return self.path.name

    @property
    def stem(self) -> str:
        return self.path.stem


@dataclass(frozen=True)
class OnnxFile(SourceFile):
    """A model that is ONNX already."""

    def produce(self, folder: Path, examples: Examples) -> Produced:  # noqa: ARG002
        return Produced(self.path)


@dataclass(frozen=True)
class Request:
    """What is to be added, and how.

    Attributes:
        name: in the repository; made from the source's stem when empty.
        samples: real inputs, a file or a folder.
        next_version: whether it becomes the newest version of the model of that name.
    """

    source: Source
    name: str = ""
    wanted: Wanted = field(default_factory=Wanted)
    samples: Path | None = None
    licence: str = ""
    next_version: bool = False

    @property
    def examples(self) -> Examples:
        return Examples(self.samples, self.wanted.given.shapes, self.wanted.max_batch_size > 0)

    def place_in(self, root: Path) -> Model:
        """Where the model goes in the repository ``root``.

        Raises:
            UsageError: the name cannot be that of a folder on every system.
            ModelError: it is taken; or nothing is there of which this could be the next version.
        """
        name = self.name or _derived(self.source.stem)
        if not _NAME.fullmatch(name):
            raise UsageError(
                f"{name!r} cannot be a model's name: it is a folder's too, and part of addresses",
                hint="Give --name with letters, digits, '_', '-' and '.', a letter or digit first.",
            )
        model = Model(root, name)
        taken = model.folder.is_dir() and any(model.folder.iterdir())
        if self.next_version and not (model.folder / "config.pbtxt").is_file():
            raise ModelError(
                f"there is no model {name!r} in {root} to have a next version",
                hint="Leave --as-next-version out, or give the model's --name.",
            )
        if not self.next_version and (taken or name in ENTRIES):
            why = f"{model.folder} is there already" if taken else f"{name!r} is a model of the zoo"
            raise ModelError(
                f"the name is taken: {why}",
                hint="Give another --name, or --as-next-version to add a version to it.",
            )
        return model


def _derived(stem: str) -> str:
    """A safe name: letters without accents, other characters as ``_``."""
    plain = unicodedata.normalize("NFKD", stem).encode("ascii", "ignore").decode()
    return _UNSAFE.sub("_", plain).strip("._-")
