"""From records of single requests to counts and histograms, while the load runs.

Records are dropped as soon as they are counted, so memory stays flat however long a run is.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from hdrh.histogram import HdrHistogram

from loadtest.engine.base import OUTCOME, RECORD, Records
from loadtest.histogram import Tally, encode, merge
from loadtest.results import OUTCOMES

WINDOW_NS = 1_000_000_000
LATE_NS = 1_000_000

_OK = OUTCOME["ok"]
_NOT_SENT = OUTCOME["not_sent"]
_MEASURES = ("response_time", "service_time")
_SETTLED_WINDOWS = 3
"""Windows this much older than the newest are encoded; a straggler is added to them later."""


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
    """

    outcomes: dict[str, int]
    completed: tuple[int, ...]
    in_flight_ns: int
    response_time: tuple[dict[str, str], ...]
    service_time: tuple[dict[str, str], ...]
    lateness: str
    first_byte: str


class Recorder:
    """Counts what was due inside [start, end); all times are ``time.monotonic_ns``."""

    def __init__(self, start_ns: int, end_ns: int, *, samples_per_query: int = 1) -> None:
        """With ``samples_per_query`` above 1, that many records of equal ``query`` are one."""
        self.start_ns = start_ns
        self.end_ns = end_ns
        self._queries = _Queries(samples_per_query) if samples_per_query > 1 else None
        self._counts = np.zeros(len(OUTCOMES), np.int64)
        self._completed: dict[int, int] = defaultdict(int)
        self._in_flight_ns = 0
        self._open: dict[int, dict[tuple[str, int], Tally]] = {}
        self._encoded: dict[int, dict[tuple[str, int], str]] = {}
        self._lateness, self._first_byte = Tally(), Tally()
        self.last_done_ns = start_ns

    @property
    def planned(self) -> int:
        """Requests of the window so far, sent or not."""
        return int(self._counts.sum())

    def add(self, records: Records) -> None:
        """Count finished requests, in any order."""
        if self._queries:
            records = self._queries.join(records)
        sent = records[records["outcome"] != _NOT_SENT]
        overlap = np.minimum(sent["done"], self.end_ns) - np.maximum(sent["sent"], self.start_ns)
        self._in_flight_ns += int(np.maximum(overlap, 0).sum())
        inside = records[(records["due"] >= self.start_ns) & (records["due"] < self.end_ns)]
        if not len(inside):
            return
        self._counts += np.bincount(inside["outcome"], minlength=len(OUTCOMES))
        sent = inside[inside["outcome"] != _NOT_SENT]
        if not len(sent):
            return
        self._lateness.add(sent["sent"] - sent["due"])
        right = sent[sent["outcome"] == _OK]
        told = right[right["first_byte"] > 0]
        self._first_byte.add(told["first_byte"] - told["sent"])
        self.last_done_ns = max(self.last_done_ns, int(sent["done"].max()))
        self._count_completed(right)
        self._fill_windows(sent)

    def _count_completed(self, right: Records) -> None:
        seconds = (right["done"][right["done"] < self.end_ns] - self.start_ns) // WINDOW_NS
        for second, count in zip(*np.unique(seconds, return_counts=True), strict=True):
            self._completed[int(second)] += int(count)

    def _fill_windows(self, sent: Records) -> None:
        seconds = (sent["due"] - self.start_ns) // WINDOW_NS
        for second in np.unique(seconds).tolist():
            window = self._open.setdefault(second, {})
            in_window = sent[seconds == second]
            for kind in np.unique(in_window["outcome"]).tolist():
                these = in_window[in_window["outcome"] == kind]
                since = {"response_time": these["due"], "service_time": these["sent"]}
                for measure in _MEASURES:
                    tally = window.setdefault((measure, kind), Tally())
                    tally.add(these["done"] - since[measure])
        self._settle(max(self._open) - _SETTLED_WINDOWS)

    def _settle(self, newest: int) -> None:
        for second in [second for second in self._open if second <= newest]:
            kept = self._encoded.setdefault(second, {})
            for key, tally in self._open.pop(second).items():
                histogram = tally.histogram()
                if key in kept:
                    histogram.decode_and_add(kept[key])
                kept[key] = encode(histogram)

    def right_answers(self) -> HdrHistogram:
        """Response times of all right answers so far."""
        key = ("response_time", _OK)
        total = merge(window[key] for window in self._encoded.values() if key in window)
        for window in self._open.values():
            if key in window:
                total.add(window[key].histogram())
        return total

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
        )

    def _windows(self, measure: str, windows: range) -> tuple[dict[str, str], ...]:
        return tuple(
            {
                OUTCOMES[kind]: text
                for (name, kind), text in self._encoded.get(second, {}).items()
                if name == measure
            }
            for second in windows
        )


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
