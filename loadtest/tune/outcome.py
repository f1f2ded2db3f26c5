"""What was found of one setting, as the study keeps it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from loadtest.tune.space import Point

Verdict = Literal["searched", "pruned", "not reachable", "failed"]
"""``searched``: the highest rate within the objectives is known. ``pruned``: it cannot be the best,
so it was left. ``failed``: the server did not start, died, or answered wrongly."""


class Outcome(BaseModel):
    """All but the verdict is null where it is not known."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    verdict: Verdict
    why: str
    goodput_rps: float | None = Field(
        default=None, description="highest rate that met every objective"
    )
    estimate_rps: float | None = Field(
        default=None, description="what the sampler is told: goodput, or the best guess at it"
    )
    capacity_rps: float | None = Field(default=None, description="of the closed loops")
    guess_rps: float | None = Field(default=None, description="of goodput, from the closed loops")
    p99_ms: float | None = Field(default=None, description="at the goodput's rate, as the rest")
    memory_bytes: float | None = None
    joules: float | None = Field(default=None, description="of the machine, per inference")
    spent_s: float = 0.0


@dataclass(frozen=True)
class Tried:
    """One setting that was started.

    Attributes:
        number: its place in the study, from 0.
        here: whether its measurements lie in this results folder.
        outcome: ``None`` while it is being measured.
    """

    number: int
    point: Point
    here: bool
    outcome: Outcome | None = None
