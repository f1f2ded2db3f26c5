"""What the runner tells the generator process about its trials, and what comes back."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from loadtest.engine.base import Target
from loadtest.explained import ServerTimings
from loadtest.frames import StreamFrames, in_turn
from loadtest.histogram import encode, merge
from loadtest.live import Board, board_path
from loadtest.payload import in_sequence, read_payloads
from loadtest.recorder import add_up
from loadtest.results import NEVER_SENT
from loadtest.scenarios import ClosedLoop, Load, OpenLoop, make_load
from loadtest.timings import TimingsSource
from serving.errors import UsageError


class _Message(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class StopRule(_Message):
    """What a window must keep; it ends as soon as it cannot any more (``loadtest.early_stop``).

    Attributes:
        percentiles: quantile and limit in nanoseconds of each percentile that is bounded.
        failures: share of the planned requests that may fail.
    """

    percentiles: tuple[tuple[float, int], ...]
    failures: float


class TrialSpec(_Message):
    """One scenario at one or more levels, measured one after another.

    Attributes:
        payloads: folder with prepared requests.
        connections: most connections that one generator opens.
        values_every: compare the values of every n-th reply whose bytes are new; 0 for never.
        server_pid: the server's first process, to read its CPU time; ``None`` for a remote one.
        output: where the generator appends one ``LevelOutput`` per line.
        until_confident: go on until p99's bounds are within this share of it, at most ``limit_s``.
        labels: file with the labels of the boards that the generators keep; ``None`` for no boards.
        slo_ns: the objective, whose keeping the boards count exactly.
        timings: where the server may tell its own timings; the first generator asks.
        stop: ends a stationary open loop's window that is lost; one generator must see all of it.
        records: folder where a lone generator keeps each request of a window, as
            ``<level>.npy`` with the columns ``loadtest.recorder.KEPT``; ``None`` for histograms
            only.
        index, count: which of how many generators this is.
    """

    url: str
    model: str
    payloads: Path
    driver: Literal["locust", "loadgen"] = "locust"
    engine: str = "native"
    ca_file: Path | None = None
    headers: dict[str, str] = Field(default_factory=dict)
    scenario: str = "closed"
    parameters: dict[str, str] = Field(default_factory=dict)
    levels: tuple[float, ...]
    duration_s: float
    timeout_s: float
    connections: int = 1024
    seed: int
    values_every: int
    server_pid: int | None
    output: Path
    until_confident: float | None = None
    limit_s: float = 300.0
    labels: Path | None = None
    slo_ns: int | None = None
    timings: TimingsSource | None = None
    stop: StopRule | None = None
    records: Path | None = None
    index: int = 0
    count: int = 1

    def load_of(self, level: float) -> Load:
        """Raises UsageError when the scenario makes no load of it."""
        return make_load(self.scenario, level, self.parameters, self.duration_s)

    def target(self) -> Target:
        """Where this generator sends, with the prepared requests read from their folder.

        Raises:
            UsageError: there are more streams than connections, or the scenario makes no load.
        """
        payloads = read_payloads(self.payloads)
        load = self.load_of(max(self.levels))
        streams = self._own(load)
        rule = load.streams if isinstance(load, OpenLoop) else None
        if streams:
            # The first sequence is 1: in the protocol 0 means none.
            payloads = [one for number in streams for one in in_sequence(payloads, number + 1)]
        return Target(
            url=self.url,
            model=self.model,
            payloads=tuple(payloads),
            streams=len(streams),
            policy=rule.policy if rule else "fifo",
            deadline_ns=rule.deadline_ns if rule else None,
            timeout_s=self.timeout_s,
            connections=len(streams) or self.connections,
            values_every=self.values_every,
            seed=self.seed + self.index,
            headers=self.headers,
        )

    def board(self) -> Board | None:
        """A board for this generator; ``None`` on another host than the runner's."""
        if self.labels is None or not self.labels.is_file():
            return None
        try:
            return Board.create(board_path(self.labels, self.index), self.slo_ns)
        except OSError as error:
            print(f"this generator is not published: {error}", flush=True)  # noqa: T201  (its log)
            return None

    def _own(self, load: Load) -> range:
        """Numbers of the streams that may run here; as many in each generator."""
        if isinstance(load, ClosedLoop):
            streams = load.users if load.in_order else 0
        else:
            streams = len(load.streams.names) if load.streams else 0
        each = -(-streams // self.count)
        if each > self.connections:
            raise UsageError(
                f"{each} streams in one generator are more than its {self.connections} connections",
                hint="Raise --connections or --processes.",
            )
        return range(self.index, each * self.count, self.count)


class LevelOutput(_Message):
    """What was measured at one level; times in seconds, histograms in nanoseconds.

    Attributes:
        window_started_unix_s: when the window began, by this host's clock.
        settled: whether warm-up ended by its rule rather than by its time limit.
        outcomes: of every request that was due in the window, sent or not.
        frames: of each stream of an open loop, in their order.
        mean_in_flight: time in flight of all requests over the window's length.
        lost: records that were dropped, and replies that could not be checked.
        clock_error_s: largest error of the start that several hosts agreed on.
        cut: why the window was ended early; ``None`` when it has its whole length.
        server_timings: what the server counted in the window, where it tells.
        server_timings_missing: why it does not.
    """

    level: float
    window_started_unix_s: float
    window_s: float
    warmup_s: float
    warmup_requests: int
    settled: bool
    outcomes: dict[str, int]
    completed: tuple[int, ...]
    mean_in_flight: float
    response_time: tuple[dict[str, str], ...]
    service_time: tuple[dict[str, str], ...]
    lateness: str
    first_byte: str
    client_cpu_s: float
    server_cpu_s: float | None
    server_rss_bytes: int | None
    lost_server_pids: tuple[int, ...]
    lost: int
    clock_error_s: float = 0.0
    cut: str | None = None
    frames: tuple[StreamFrames, ...] = ()
    server_timings: ServerTimings | None = None
    server_timings_missing: str | None = None

    @property
    def planned(self) -> int:
        """Requests that were due in the window."""
        return sum(self.outcomes.values())

    @property
    def sent(self) -> int:
        return self.planned - sum(self.outcomes[name] for name in NEVER_SENT)


class GeneratorFault(_Message):
    """Stands in place of a ``LevelOutput`` when the generator had to give up."""

    fault: str


def unix_s(monotonic_ns: int) -> float:
    """A moment of ``time.monotonic_ns`` on the clock of the wall."""
    return time.time() - (time.monotonic_ns() - monotonic_ns) / 1e9


def join(outputs: list[LevelOutput], clock_error_s: float) -> LevelOutput:
    """One level of several generators: counts are added, histograms merged, nothing averaged."""
    first = outputs[0]
    windows = max(len(output.response_time) for output in outputs)

    def together(measure: str) -> tuple[dict[str, str], ...]:
        found = [getattr(output, measure) for output in outputs]
        return tuple(add_up([w[i] for w in found if i < len(w)]) for i in range(windows))

    def total(measure: str) -> str:
        return encode(merge(getattr(output, measure) for output in outputs))

    return LevelOutput(
        level=first.level,
        window_started_unix_s=first.window_started_unix_s,
        window_s=max(output.window_s for output in outputs),
        warmup_s=max(output.warmup_s for output in outputs),
        warmup_requests=sum(output.warmup_requests for output in outputs),
        settled=all(output.settled for output in outputs),
        outcomes={name: sum(o.outcomes[name] for o in outputs) for name in first.outcomes},
        completed=tuple(
            sum(o.completed[i] for o in outputs if i < len(o.completed)) for i in range(windows)
        ),
        mean_in_flight=sum(output.mean_in_flight for output in outputs),
        response_time=together("response_time"),
        service_time=together("service_time"),
        lateness=total("lateness"),
        first_byte=total("first_byte"),
        client_cpu_s=sum(output.client_cpu_s for output in outputs),
        server_cpu_s=first.server_cpu_s,
        server_rss_bytes=first.server_rss_bytes,
        lost_server_pids=first.lost_server_pids,
        lost=sum(output.lost for output in outputs),
        clock_error_s=clock_error_s,
        frames=in_turn([output.frames for output in outputs]),
        server_timings=first.server_timings,
        server_timings_missing=first.server_timings_missing,
    )
