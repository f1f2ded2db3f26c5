"""From records of single requests to counts and histograms, while the load runs.

Records are dropped as soon as they are counted; what grows is some kilobytes per second of a run.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from hdrh.histogram import HdrHistogram
from numpy.lib.recfunctions import repack_fields

from loadtest.engine.base import OUTCOME, RECORD, Column, Records
from loadtest.frames import FrameTally, StreamFrames
from loadtest.histogram import Tally, encode, merge
from loadtest.live import Board
from loadtest.results import NEVER_SENT, OUTCOMES

WINDOW_NS = 1_000_000_000

_OK = OUTCOME["ok"]
_NEVER_SENT = [OUTCOME[name] for name in NEVER_SENT]
_MEASURES = ("response_time", "service_time")
KEPT = ("due", "sent", "done", "payload", "outcome")
"""Of each request, where all of them are kept."""
_SETTLED_WINDOWS = 3
"""Windows this much older than the newest are packed; a straggler is added to them later."""


@dataclass(frozen=True)
class Measured:
    """One measured window, reduced to what is kept.

    Attributes:
        outcomes: count per outcome class of the requests that were due in the window.
        completed: right answers per one-second window, by when they were whole.
        in_flight_ns: request time inside the window; over its length it is the mean number in
            flight. By Little's law that is rate times mean latency, without the error at the edges.
        response_time: per one-second window, outcome to an encoded histogram; counted from due.
        service_time: the same, counted from sent.
        lateness: encoded histogram of sent minus due.
        first_byte: encoded histogram of first byte minus sent, of right answers.
        frames: of each stream, where there are streams.
    """

    outcomes: dict[str, int]
    completed: tuple[int, ...]
    in_flight_ns: int
    response_time: tuple[dict[str, str], ...]
    service_time: tuple[dict[str, str], ...]
    lateness: str
    first_byte: str
    frames: tuple[StreamFrames, ...] = ()


class Recorder:
    """Counts what was due inside [start, end); all times are ``time.monotonic_ns``."""

    def __init__(
        self,
        start_ns: int,
        end_ns: int,
        *,
        samples_per_query: int = 1,
        board: Board | None = None,
        keep: bool = False,
        frames: FrameTally | None = None,
    ) -> None:
        """With ``samples_per_query`` above 1, that many records of equal ``query`` are one.

        ``keep``: every request of the window is kept for ``kept``, which costs memory.
        ``frames`` counts by stream as well.
        """
        self.start_ns = start_ns
        self.end_ns = end_ns
        self._board = board
        self._frames = frames
        self._queries = _Queries(samples_per_query) if samples_per_query > 1 else None
        self._kept: list[Records] | None = [] if keep else None
        self._counts = np.zeros(len(OUTCOMES), np.int64)
        self._completed: dict[int, int] = defaultdict(int)
        self._in_flight_ns = 0
        self._open: dict[int, dict[tuple[str, int], Tally]] = {}
        self._packed: dict[int, dict[tuple[str, int], bytes]] = {}
        self._lateness, self._first_byte, self._right = Tally(), Tally(), Tally()
        self.last_done_ns = start_ns

    @property
    def planned(self) -> int:
        """Requests of the window so far, sent or not."""
        return int(self._counts.sum())

    def add(self, records: Records) -> None:
        """Count finished requests, in any order."""
        if self._queries:
            records = self._queries.join(records)
        due, sent, done, outcome = (records[name] for name in ("due", "sent", "done", "outcome"))
        if self._frames:
            self._frames.add(records, self.end_ns)
        left = ~np.isin(outcome, _NEVER_SENT)
        overlap = np.minimum(done, self.end_ns) - np.maximum(sent, self.start_ns)
        self._in_flight_ns += int(np.maximum(overlap, 0).sum(where=left))
        inside = (due >= self.start_ns) & (due < self.end_ns)
        counts = np.bincount(outcome[inside], minlength=len(OUTCOMES))
        self._counts += counts
        if self._kept is not None:
            self._kept.append(records[[*KEPT]][inside])
        if self._board:
            self._board.count(counts)
        for kind in np.flatnonzero(counts).tolist():
            if kind not in _NEVER_SENT:
                self._add_kind(kind, _where(records, inside & (outcome == kind)))
        if self._open:
            self._settle(max(self._open) - _SETTLED_WINDOWS)

    def _add_kind(self, kind: int, records: Records) -> None:
        """Count requests of one outcome that were due in the window."""
        due, sent, done, first = (
            np.ascontiguousarray(records[name]) for name in ("due", "sent", "done", "first_byte")
        )
        self.last_done_ns = max(self.last_done_ns, int(done.max()))
        if self._board:
            self._board.add(kind, done - due, done - sent, sent - due)
        self._lateness.add(sent - due)
        if kind == _OK:
            self._right.add(done - due)
            self._first_byte.add((first - sent)[first > 0])
            self._count_completed(done)
        seconds = (due - self.start_ns) // WINDOW_NS
        for second in range(int(seconds.min()), int(seconds.max()) + 1):
            here = seconds == second
            if here.any():
                window = self._open.setdefault(second, {})
                self._tally(window, "response_time", kind).add((done - due)[here])
                self._tally(window, "service_time", kind).add((done - sent)[here])

    @staticmethod
    def _tally(window: dict[tuple[str, int], Tally], measure: str, kind: int) -> Tally:
        if (measure, kind) not in window:
            window[measure, kind] = Tally()
        return window[measure, kind]

    def _count_completed(self, done: Column) -> None:
        seconds = (done[done < self.end_ns] - self.start_ns) // WINDOW_NS
        if len(seconds):
            first = int(seconds.min())
            for second, count in enumerate(np.bincount(seconds - first), first):
                self._completed[second] += int(count)

    def _settle(self, newest: int) -> None:
        for second in [second for second in self._open if second <= newest]:
            kept = self._packed.setdefault(second, {})
            for key, tally in self._open.pop(second).items():
                if key in kept:
                    tally.join(Tally.unpack(kept[key]))
                kept[key] = tally.pack()

    def kept(self) -> Records:
        """Every request of the window so far, in the order they ended; columns ``KEPT``."""
        assert self._kept is not None
        packed = [repack_fields(records) for records in self._kept]
        return np.concatenate(packed) if packed else np.zeros(0, RECORD)[[*KEPT]]

    def right_answers(self) -> HdrHistogram:
        """Response times of all right answers so far."""
        return self._right.histogram()

    def finish(self) -> Measured:
        """Everything counted; call once no more records can come."""
        if self._open:
            self._settle(max(self._open))
        windows = range(-(-(self.end_ns - self.start_ns) // WINDOW_NS))
        response, service = (self._windows(measure, windows) for measure in _MEASURES)
        return Measured(
            outcomes=dict(zip(OUTCOMES, self._counts.tolist(), strict=True)),
            completed=tuple(self._completed[second] for second in windows),
            in_flight_ns=self._in_flight_ns,
            response_time=response,
            service_time=service,
            lateness=encode(self._lateness.histogram()),
            first_byte=encode(self._first_byte.histogram()),
            frames=self._frames.finish(self.end_ns) if self._frames else (),
        )

    def _windows(self, measure: str, windows: range) -> tuple[dict[str, str], ...]:
        return tuple(
            {
                OUTCOMES[kind]: encode(Tally.unpack(packed).histogram())
                for (name, kind), packed in self._packed.get(second, {}).items()
                if name == measure
            }
            for second in windows
        )


def _where(records: Records, mask: npt.NDArray[np.bool_]) -> Records:
    """Without copying where all are wanted, as they nearly always are."""
    chosen: Records = records if mask.all() else records[mask]
    return chosen


class _Queries:
    """Joins the records of one multi-stream query: due and sent of the first, done of the last."""

    def __init__(self, samples: int) -> None:
        self._samples = samples
        self._parts: dict[int, list[Records]] = defaultdict(list)

    def join(self, records: Records) -> Records:
        whole = []
        for record in records:
            parts = self._parts[int(record["query"])]
            parts.append(record)
            if len(parts) == self._samples:
                whole.append(_joined(np.array(parts, RECORD)))
                del self._parts[int(record["query"])]
        return np.array(whole, RECORD)


def _joined(parts: Records) -> Records:
    last: Records = parts[np.argmax(parts["done"])].copy()
    last["sent"] = parts["sent"].min()
    last["first_byte"] = parts["first_byte"].min()
    # One failed sample fails its query; the classes are in order of how much they say.
    last["outcome"] = parts["outcome"].max()
    return last


def add_up(windows: list[Mapping[str, str]]) -> dict[str, str]:
    """The same second of several generators as one window."""
    names = {name for window in windows for name in window}
    return {name: encode(merge(w[name] for w in windows if name in w)) for name in sorted(names)}
