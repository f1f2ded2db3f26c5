"""What was delivered of the frames of streams, counted while the load runs.

The definitions are those of ``loadtest.capacity.cameras``, so that a simulation may be held against
a measurement. A stream costs a few kilobytes, however long it runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest

import numpy as np
from pydantic import BaseModel, ConfigDict

from loadtest.engine.base import OUTCOME, Column, Records
from loadtest.histogram import Tallies, encode

_OK, _DROPPED = OUTCOME["ok"], OUTCOME["dropped"]


class StreamFrames(BaseModel):
    """One stream in one window.

    Attributes:
        frames: those that were due in the window; ages, missed and dropped are of them.
        answers: right ones within the window, whenever their frames were due.
        missed: not delivered by the deadline, be it late or never; ``None`` without one.
        dropped: those that the camera gave up by its policy.
        longest_gap_ns: between answers, from the window's start to its end.
        ages: encoded histogram, from due to a right answer.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    frames: int
    answers: int
    missed: int | None
    dropped: int
    longest_gap_ns: int
    ages: str


class FrameTally:
    """Counts the records of the streams ``names``, of which each has ``samples`` payloads."""

    def __init__(
        self, names: Sequence[str], samples: int, start_ns: int, deadline_ns: int | None
    ) -> None:
        """``start_ns`` is the window's, by the clock of the records."""
        self._names = names
        self._samples = samples
        self._start_ns = start_ns
        self._deadline_ns = deadline_ns
        streams = len(names)
        self._frames, self._in_time, self._dropped, self._answers = np.zeros((4, streams), np.int64)
        self._last_ns = np.full(streams, start_ns, np.int64)
        self._gap_ns = np.zeros(streams, np.int64)
        self._ages = Tallies()

    def add(self, records: Records, end_ns: int) -> None:
        """More of what has ended; each stream's in the order in which they were answered.

        ``end_ns``: the window's end as far as it is known. It may be moved on until it has come.
        """
        streams = records["payload"] // self._samples
        due, done, outcome = (records[name] for name in ("due", "done", "outcome"))
        right = outcome == _OK
        inside = (due >= self._start_ns) & (due < end_ns)
        self._frames += self._count(streams[inside])
        self._dropped += self._count(streams[inside & (outcome == _DROPPED)])
        if self._deadline_ns is not None:
            in_time = inside & right & (done - due <= self._deadline_ns)
            self._in_time += self._count(streams[in_time])
        answered = right & (done >= self._start_ns) & (done < end_ns)
        self._answers += self._count(streams[answered])
        self._note_gaps(streams[answered], done[answered])
        delivered = inside & right
        self._ages.add(streams[delivered], (done - due)[delivered])

    def _count(self, streams: Column) -> Column:
        return np.bincount(streams, minlength=len(self._names))

    def _note_gaps(self, streams: Column, done_ns: Column) -> None:
        """Between each answer and the one before it of its stream."""
        order = np.argsort(streams, kind="stable")
        streams, done_ns = streams[order], done_ns[order]
        before_ns = self._last_ns[streams]
        same = np.flatnonzero(streams[1:] == streams[:-1])
        before_ns[same + 1] = done_ns[same]
        np.maximum.at(self._gap_ns, streams, done_ns - before_ns)
        np.maximum.at(self._last_ns, streams, done_ns)

    def finish(self, end_ns: int) -> tuple[StreamFrames, ...]:
        """Everything counted, of a window that ended at ``end_ns``."""
        gaps_ns = np.maximum(self._gap_ns, end_ns - self._last_ns)
        late = self._frames - self._in_time
        return tuple(
            StreamFrames(
                name=name,
                frames=int(self._frames[number]),
                answers=int(self._answers[number]),
                missed=None if self._deadline_ns is None else int(late[number]),
                dropped=int(self._dropped[number]),
                longest_gap_ns=int(gaps_ns[number]),
                ages=encode(self._ages.histogram(number)),
            )
            for number, name in enumerate(self._names)
        )


def in_turn(parts: Sequence[Sequence[StreamFrames]]) -> tuple[StreamFrames, ...]:
    """Of several generators, each with every so-manieth stream: all, in their order."""
    return tuple(one for round_ in zip_longest(*parts) for one in round_ if one is not None)
