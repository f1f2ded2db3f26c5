"""One ``config.pbtxt`` under inspection, and what is found in it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from tritonclient.grpc import model_config_pb2 as schema

from serving.linting.positions import Node
from serving.models.repository import Model

Severity = Literal["error", "warning"]


@dataclass(frozen=True)
class Finding:
    """Something wrong.

    Attributes:
        severity: ``error`` where a server refuses to load it or answers wrongly; ``warning`` where
            all load it and do something else than what was probably meant.
    """

    file: Path
    line: int
    severity: Severity
    what: str
    hint: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.severity}: {self.what}. {self.hint}"


@dataclass(frozen=True)
class Document:
    """A file that protobuf could read."""

    model: Model
    message: schema.ModelConfig
    root: Node

    @property
    def file(self) -> Path:
        return self.model.folder / "config.pbtxt"

    @property
    def is_ensemble(self) -> bool:
        schedules = self.message.WhichOneof("scheduling_choice") == "ensemble_scheduling"
        return schedules or str(self.message.platform) == "ensemble"

    def error(self, what: str, hint: str, *steps: str | int) -> Finding:
        """``steps`` lead to the field at fault."""
        return Finding(self.file, self.root.find(*steps).line, "error", what, hint)

    def warning(self, what: str, hint: str, *steps: str | int) -> Finding:
        return Finding(self.file, self.root.find(*steps).line, "warning", what, hint)


Documents = Mapping[str, Document]
"""Those of a repository that could be read, by the name of the model."""
