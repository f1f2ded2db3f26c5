"""What was delivered of the frames of streams, as text: page, terminal, Markdown. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from loadtest.delivered import Delivered, FramesRecord
from loadtest.report.numbers import MISSING, failed, milliseconds, rate
from loadtest.results import Point, Summary

MOST = 32
"""Streams of one point that are shown; of more those that got least."""


@dataclass(frozen=True)
class FramesRow:
    """One stream, or all of a point together, as text."""

    name: str
    frames: str
    delivered: str
    age_p50: str
    age_p99: str
    missed: str
    dropped: str
    longest_gap: str


@dataclass(frozen=True)
class FramesPoint:
    """One backend at one level.

    Attributes:
        rule: policy and deadline.
        streams: of how many; ``shown`` are all of them or the worst.
    """

    backend: str
    level: float
    rule: str
    due: str
    together: FramesRow
    streams: int
    shown: tuple[FramesRow, ...]


def frames_of(summary: Summary) -> tuple[FramesPoint, ...]:
    """Every point whose arrivals were frames of streams."""
    return tuple(
        _point(backend.label, point, point.frames)
        for backend in summary.backends
        for point in backend.points
        if point.frames
    )


def frames_lines(summary: Summary) -> Iterator[str]:
    """A sentence for each point."""
    unit = summary.manifest.settings.level_name
    for one in frames_of(summary):
        all_ = one.together
        missed = "" if all_.missed == MISSING else f"{all_.missed} missed, "
        yield (
            f"{one.backend}, {one.level:g} {unit}, {one.rule}: {all_.delivered} frames/s delivered "
            f"of {one.due} due; age p50 {all_.age_p50}, p99 {all_.age_p99} ms; of {all_.frames} "
            f"frames {missed}{all_.dropped} dropped; longest gap {all_.longest_gap} ms"
        )


def _point(backend: str, point: Point, told: FramesRecord) -> FramesPoint:
    deadline = "" if told.deadline_ms is None else f", deadline {told.deadline_ms:g} ms"
    worst = sorted(told.streams, key=_loss, reverse=True)[:MOST]
    return FramesPoint(
        backend=backend,
        level=point.level,
        rule=f"{told.policy}{deadline}",
        due=rate(point.planned_per_s),
        together=_row(told.together),
        streams=len(told.streams),
        shown=tuple(_row(one) for one in told.streams if one in worst),
    )


def _loss(one: Delivered) -> tuple[int, int, float]:
    """What makes a stream worse than others, the most important first."""
    return one.missed or 0, one.dropped, one.age_p99_ms or one.age_p50_ms or 0.0


def _row(one: Delivered) -> FramesRow:
    return FramesRow(
        name=one.name,
        frames=f"{one.frames:,}",
        delivered=rate(one.delivered_fps),
        age_p50=_age(one.age_p50_ms),
        age_p99=_age(one.age_p99_ms),
        missed=MISSING if one.missed is None else _of(one.missed, one.frames),
        dropped=_of(one.dropped, one.frames),
        longest_gap=milliseconds(one.longest_gap_ms),
    )


def _age(value_ms: float | None) -> str:
    return "too few" if value_ms is None else milliseconds(value_ms)


def _of(count: int, frames: int) -> str:
    return f"{count:,} ({failed(count / frames)})" if count else "0"
