"""What a generator has counted so far, in a memory-mapped file that another process may read.

So a scrape costs the generator nothing: it adds to integers, and whoever publishes them reads.
Numbers only ever grow, and each is one aligned word, so a reader sees no half of one.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel, ConfigDict

from loadtest.engine.base import Column
from loadtest.results import OUTCOMES
from serving.metrics.buckets import CLIENT_NS, bounds_with

IDLE, WARMING_UP, MEASURING = 0, 1, 2
"""Values of ``phase``."""

Counts = npt.NDArray[np.int64]


class LoadLabels(BaseModel):
    """Whose numbers a board holds; lies beside it as JSON."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    backend: str
    model: str
    scenario: str
    slo_ns: int | None
    ceiling_rps: float | None


def _layout(bounds_ns: tuple[int, ...]) -> np.dtype[Any]:
    """One row of ``buckets`` per outcome; the last bucket is for what is above all bounds."""
    buckets = len(bounds_ns) + 1
    return np.dtype(
        [
            ("phase", "i8"),
            ("level", "f8"),
            ("due", "i8"),
            ("outcomes", "i8", (len(OUTCOMES),)),
            ("response", "i8", (len(OUTCOMES), buckets)),
            ("response_ns", "i8", (len(OUTCOMES),)),
            ("service", "i8", (len(OUTCOMES), buckets)),
            ("service_ns", "i8", (len(OUTCOMES),)),
            ("lateness", "i8", (buckets,)),
            ("lateness_ns", "i8"),
        ]
    )


class Board:
    """Counts of one generator process since it began, of requests due in measured windows.

    Attributes:
        bounds_ns: upper bounds of the buckets, the objective among them.
    """

    def __init__(self, fields: npt.NDArray[Any], bounds_ns: tuple[int, ...]) -> None:
        self._fields = fields
        self._bounds_ns = np.array(bounds_ns)
        self.bounds_ns = bounds_ns

    @classmethod
    def create(cls, path: Path, slo_ns: int | None) -> Board:
        """An empty board that this process writes. Raises OSError where it cannot be made."""
        bounds_ns = bounds_with(CLIENT_NS, slo_ns)
        return cls(np.memmap(path, _layout(bounds_ns), "w+", shape=(1,)), bounds_ns)

    @classmethod
    def read(cls, path: Path, slo_ns: int | None) -> Board:
        """The board as it is now and becomes. Raises OSError or ValueError for a broken file."""
        bounds_ns = bounds_with(CLIENT_NS, slo_ns)
        return cls(np.memmap(path, _layout(bounds_ns), "r", shape=(1,)), bounds_ns)

    def __getitem__(self, field: str) -> Any:
        return self._fields[field][0]

    def enter(self, phase: int, level: float) -> None:
        self._fields["level"] = level
        self._fields["phase"] = phase

    def set_due(self, count: int) -> None:
        self._fields["due"] = count

    def count(self, counts: Counts) -> None:
        """More requests per outcome."""
        self._fields["outcomes"][0] += counts

    def add(self, outcome: int, response_ns: Column, service_ns: Column, late_ns: Column) -> None:
        """Requests that were sent and ended in one ``outcome``."""
        for name, values in (("response", response_ns), ("service", service_ns)):
            self._fields[name][0, outcome] += self._in_buckets(values)
            self._fields[f"{name}_ns"][0, outcome] += values.sum()
        self._fields["lateness"][0] += self._in_buckets(late_ns)
        self._fields["lateness_ns"][0] += late_ns.sum()

    def _in_buckets(self, values_ns: Column) -> Counts:
        places = np.searchsorted(self._bounds_ns, values_ns)
        return np.bincount(places, minlength=len(self.bounds_ns) + 1)


def boards_beside(labels: Path) -> list[Path]:
    """The boards whose labels lie in the file ``labels``, one per generator process."""
    return sorted(labels.parent.glob(f"{labels.stem}.*.board"))


def board_path(labels: Path, index: int) -> Path:
    """Where generator ``index`` keeps its own."""
    return labels.with_suffix(f".{index}.board")


def in_window(board: Path) -> bool:
    """Whether the generator of this board measures now; not while the board is being made."""
    try:
        return bool(Board.read(board, None)["phase"] == MEASURING)
    except (OSError, ValueError):
        return False
