"""A fleet in virtual time: from arrivals to when each request was served, or why it was not.

Discrete events over measured service times. The same seed gives the same answer, however the
arrivals are cut into chunks.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields

import numpy as np
import numpy.typing as npt

from loadtest.capacity import loop
from loadtest.capacity.loop import NONE, Small
from loadtest.capacity.scheduler import Fleet
from loadtest.capacity.service import Times
from loadtest.capacity.state import ENDED, new_state, with_room
from serving.errors import UsageError

CHUNK = 1 << 18
OUTCOMES = ("ok", "rejected", "expired", "dropped")
"""Served; refused by a full queue; refused after its timeout; dropped by the frame policy."""


@dataclass(frozen=True)
class Requests:
    """What became of requests, one entry each.

    Attributes:
        index: their place among the arrivals, from 0.
        started_ns: when an instance took it, -1 where none did.
        done_ns: when it was answered, refused or dropped.
        replica: where it was sent, -1 for a frame that never was.
        stream: -1 where it belongs to none.
        batch: size of the batch that it was served in, 0 where it was not.
        outcome: place in ``OUTCOMES``.
    """

    index: Times
    arrived_ns: Times
    started_ns: Times
    done_ns: Times
    replica: Small
    stream: Small
    batch: Small
    outcome: npt.NDArray[np.int8]

    def __len__(self) -> int:
        return len(self.index)

    @property
    def ok(self) -> npt.NDArray[np.bool_]:
        return np.equal(self.outcome, loop.OK)

    @property
    def waited_ns(self) -> Times:
        """From arrival to start, of those that were served."""
        return (self.started_ns - self.arrived_ns)[self.ok]

    @property
    def took_ns(self) -> Times:
        """From arrival to answer, of those that were served."""
        return (self.done_ns - self.arrived_ns)[self.ok]

    def count(self, outcome: str) -> int:
        return int((self.outcome == OUTCOMES.index(outcome)).sum())


_THE_END_NS = (loop.NEVER >> 1) - 1
_COLUMNS = tuple(column.name for column in fields(Requests))


class Simulation:
    """A fleet that is fed arrivals chunk by chunk; memory follows what waits, not what came."""

    def __init__(self, fleet: Fleet, seed: int | np.random.SeedSequence) -> None:
        self._state = new_state(fleet)
        self._streamed = fleet.frames is not None
        self._rng = np.random.default_rng(seed)
        self._came = 0
        self._last_ns = 0

    def feed(self, arrived_ns: Times, streams: Small | None = None) -> Requests:
        """Let requests come, at ascending moments and not before those already fed.

        Returns those whose outcome is known by then, in the order in which it was decided.

        Raises:
            UsageError: the moments do not ascend, something comes after ``finish``, or streams come
                without a frame policy or the other way round.
        """
        self._check(arrived_ns, streams)
        found = self._advance(arrived_ns, streams, until_ns=-1)
        self._came += len(arrived_ns)
        self._last_ns = int(arrived_ns[-1]) if len(arrived_ns) else self._last_ns
        return found

    def finish(self) -> Requests:
        """Nothing more comes; returns the rest."""
        self._last_ns = _THE_END_NS
        return self._advance(np.zeros(0, np.int64), None, until_ns=_THE_END_NS)

    def _advance(self, arrived_ns: Times, streams: Small | None, until_ns: int) -> Requests:
        if streams is None:
            streams = np.full(len(arrived_ns), NONE, np.int32)
        highest = int(streams.max(initial=NONE))
        self._state = with_room(self._state, len(arrived_ns), highest + 1)
        times_ns = np.ascontiguousarray(arrived_ns, np.int64)
        numbers = np.ascontiguousarray(streams, np.int32)
        loop.advance(self._state, self._rng, times_ns, numbers, self._came, until_ns)
        ended = self._state.ended[: self._state.counters["ended"][0]]
        self._state.counters["ended"] = 0
        return Requests(*(ended[column] for column in _COLUMNS))

    def _check(self, arrived_ns: Times, streams: Small | None) -> None:
        if len(arrived_ns) and (arrived_ns[0] < self._last_ns or np.any(np.diff(arrived_ns) < 0)):
            raise UsageError(
                "arrivals that do not ascend", hint="Sort them, and feed chunks in their order."
            )
        if (streams is not None) != self._streamed:
            raise UsageError(
                "arrivals of streams need a frame policy, and a frame policy needs streams",
                hint="Give both or neither.",
            )


def simulate(
    fleet: Fleet,
    arrived_ns: Times,
    seed: int | np.random.SeedSequence,
    *,
    streams: Small | None = None,
    chunk: int = CHUNK,
    progress: Callable[[int], None] = lambda _: None,
) -> Requests:
    """All at once: every request, in the order of ``arrived_ns`` (ns, ascending).

    ``progress`` is told after each chunk how many have come. ``streams``: the number of the stream
    of each arrival, from 0.

    Raises:
        UsageError: see ``Simulation.feed``.
    """
    simulation = Simulation(fleet, seed)
    found = Requests(*(np.empty(len(arrived_ns), ENDED[column]) for column in _COLUMNS))
    for first in range(0, len(arrived_ns), chunk):
        part = slice(first, first + chunk)
        known = simulation.feed(arrived_ns[part], None if streams is None else streams[part])
        _place(known, found)
        progress(min(first + chunk, len(arrived_ns)))
    _place(simulation.finish(), found)
    return found


def _place(known: Requests, found: Requests) -> None:
    """Each of ``known`` to its index."""
    for column in _COLUMNS:
        getattr(found, column)[known.index] = getattr(known, column)
