"""Frames as they are told: of one window, or of its repeats together. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from hdrh.histogram import HdrHistogram

from loadtest.confidence import sample_floor
from loadtest.delivered import Delivered, FramesRecord
from loadtest.frames import StreamFrames
from loadtest.histogram import buckets, merge
from loadtest.scenarios import Streams

_MS = 1e6


@dataclass(frozen=True)
class _Part:
    """One stream in one window; ``ages`` is an encoded histogram in ns."""

    frames: int
    answers: int
    missed: int | None
    dropped_by_policy: int
    longest_gap_ms: float
    ages: str


def of_window(frames: Sequence[StreamFrames], streams: Streams, window_s: float) -> FramesRecord:
    """What the cameras of one window got."""
    parts = [
        [
            _Part(
                one.frames,
                one.answers,
                one.missed,
                one.dropped,
                one.longest_gap_ns / _MS,
                one.ages,
            )
        ]
        for one in frames
    ]
    deadline_ms = None if streams.deadline_ns is None else streams.deadline_ns / _MS
    names = [one.name for one in frames]
    return _record(streams.policy, deadline_ms, names, parts, window_s)


@dataclass(frozen=True)
class Repeat:
    """Attributes: ``ages`` are the encoded histograms of its streams, in ns."""

    frames: FramesRecord
    ages: Sequence[str]
    window_s: float


def of_repeats(repeats: Sequence[Repeat]) -> FramesRecord:
    """Counts add up, ages are of all frames, the gap is the longest of any repeat."""
    first = repeats[0].frames
    parts = [
        [
            _Part(
                told.frames,
                round(told.delivered_fps * one.window_s),
                told.missed,
                told.dropped_by_policy,
                told.longest_gap_ms,
                one.ages[number],
            )
            for one in repeats
            for told in [one.frames.streams[number]]
        ]
        for number in range(len(first.streams))
    ]
    names = [stream.name for stream in first.streams]
    window_s = sum(one.window_s for one in repeats)
    return _record(first.policy, first.deadline_ms, names, parts, window_s)


def _record(
    policy: str,
    deadline_ms: float | None,
    names: Sequence[str],
    parts: Sequence[Sequence[_Part]],
    window_s: float,
) -> FramesRecord:
    every = [part for own in parts for part in own]
    return FramesRecord(
        policy=policy,
        deadline_ms=deadline_ms,
        together=_delivered("", every, window_s),
        streams=tuple(
            _delivered(name, own, window_s) for name, own in zip(names, parts, strict=True)
        ),
    )


def _delivered(name: str, parts: Sequence[_Part], window_s: float) -> Delivered:
    ages = merge(part.ages for part in parts)
    frames = sum(part.frames for part in parts)
    return Delivered(
        name=name,
        frames=frames,
        delivered_fps=sum(part.answers for part in parts) / window_s,
        age_p50_ms=_percentile_ms(ages, 0.5),
        age_p99_ms=_percentile_ms(ages, 0.99),
        missed=_sum(part.missed for part in parts),
        dropped=frames - int(ages.total_count),
        dropped_by_policy=sum(part.dropped_by_policy for part in parts),
        longest_gap_ms=max(part.longest_gap_ms for part in parts),
    )


def _sum(values: Iterable[int | None]) -> int | None:
    known = list(values)
    return None if None in known else sum(value for value in known if value is not None)


def _percentile_ms(ages: HdrHistogram, quantile: float) -> float | None:
    """Nearest rank, as in a simulation; ``None`` for too few."""
    count = int(ages.total_count)
    if count < sample_floor(quantile):
        return None
    values, counts = buckets(ages)
    rank = math.ceil(quantile * count)
    return float(values[np.searchsorted(np.cumsum(counts), rank)] / _MS)
