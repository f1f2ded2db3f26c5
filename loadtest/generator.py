"""One generator: an engine, what it is to send, and what it measured. Knows nothing of Locust.

Stages, each called by whoever coordinates: ``begin`` a level, ``warm_up``, ``measure``.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from loadtest.camera_schedule import share_of
from loadtest.engine import open_engine
from loadtest.engine.base import BATCH, OUTCOME, Records
from loadtest.feeder import Feeder, at_random, in_order
from loadtest.frames import FrameTally
from loadtest.live import IDLE, MEASURING, WARMING_UP
from loadtest.recorder import Recorder
from loadtest.scenarios import ClosedLoop, Load, OpenLoop, Streams
from loadtest.schedule import share
from loadtest.timings import Meter
from loadtest.trial import LevelOutput, TrialSpec, unix_s
from loadtest.warmup import CHECK_EVERY_S, LEAST_S, LIMIT_S, Warmth
from serving.process import family, family_cpu_time_s, family_rss_bytes, own_cpu_time_s

if TYPE_CHECKING:
    from loadtest.early_stop import Outlook

_TURN_S = 0.1
_BACKLOG_S = 0.5
_DRAIN_EVERY_S = 0.02
_BETWEEN_BATCHES_S = 0.001
_NEVER_NS = 1 << 62
_OPEN_WARMUP_USERS = 1
_NS = 1e9


@dataclass(frozen=True)
class WarmUp:
    seconds: float
    requests: int
    settled: bool


class Generator:
    """Sends for one process. ``sleep`` must let Locust's greenlets run."""

    def __init__(self, spec: TrialSpec, sleep: Callable[[float], None]) -> None:
        """Raises InfersweepError when the engine cannot be had or the scenario makes no load."""
        self.spec = spec
        self._sleep = sleep
        target = spec.target()
        self._payloads, self._streams = len(target.payloads), target.streams
        self.engine = open_engine(spec.engine, target, spec.ca_file)
        self._board = spec.board()
        # The server's own counters are those of all generators together.
        source = spec.timings if spec.index == 0 else None
        self._meter = Meter(source, spec.headers, spec.ca_file)
        self._due_before = 0
        self.users = 0
        self._load: Load | None = None
        self._level = 0.0
        self._feeder: Feeder | None = None
        self._warm = WarmUp(0.0, 0, settled=True)
        self._schedule_ns = 0
        self._outlook: Outlook | None = None
        self._cut: str | None = None
        if spec.stop is not None:
            # Here, since it takes long. scipy costs memory that most runs need not have.
            import loadtest.early_stop  # noqa: F401, PLC0415

    def set_users(self, users: int) -> None:
        """As many users as Locust has spawned in this process."""
        self.users = users
        if isinstance(self._load, ClosedLoop):
            self.engine.set_users(users, together=self._load.together)

    def begin(self, level: float, start_ns: int) -> None:
        """Start the load of one level; its schedule counts from ``start_ns``."""
        self._level, self._load = level, self.spec.load_of(level)
        self._enter(WARMING_UP)
        self.engine.set_end(_NEVER_NS)
        self.engine.set_limit(-1, -1)
        self._feeder, self._cut, self._schedule_ns = None, None, start_ns
        self._outlook = self._look_over(start_ns, self._warm_up_limit_s)
        if isinstance(self._load, ClosedLoop):
            self.set_users(self.users)
        elif self._load.stationary:
            self._feeder = self._feed_from(self._load, start_ns)
        else:
            self.engine.set_users(_OPEN_WARMUP_USERS)

    def _feed_from(self, load: OpenLoop, start_ns: int) -> Feeder | None:
        """``None`` where all streams of the level run in other generators."""
        spec = self.spec
        rng = np.random.default_rng(spec.seed)
        if load.streams is None:
            own = share(load.arrivals(rng), spec.index, spec.count)
            seed = spec.seed + spec.index
            return Feeder(at_random(own, self._payloads, seed), start_ns)
        streams = len(self._own_names(load.streams))
        frames = share_of(load.streams.frames(rng), spec.index, spec.count)
        return Feeder(in_order(frames, streams, self._samples), start_ns) if streams else None

    def _own_names(self, streams: Streams) -> tuple[str, ...]:
        return streams.names[self.spec.index :: self.spec.count]

    @property
    def _samples(self) -> int:
        """Payloads of each stream."""
        return self._payloads // self._streams

    def _look_over(self, start_ns: int, length_s: float) -> Outlook | None:
        """What is due from ``start_ns`` on; ``None`` where nothing is to be ended early."""
        load, spec = self._load, self.spec
        if spec.stop is None or not isinstance(load, OpenLoop) or not load.stationary:
            return None
        from loadtest.early_stop import outlook_of  # noqa: PLC0415

        arrivals = load.arrivals(np.random.default_rng(spec.seed))
        window_ns = start_ns, start_ns + int(length_s * _NS)
        return outlook_of(spec.stop, arrivals, self._schedule_ns, window_ns)

    def warm_up(self, least_s: float = LEAST_S) -> WarmUp:
        """Return when the server is warm by the rule of ``loadtest.warmup``, or at its limit.

        Not before ``least_s``. Or when there has been a backlog for ``_BACKLOG_S``: then the window
        begins, and decides.
        """
        begun, warmth = time.monotonic(), Warmth()
        elapsed = checked = backlog_s = 0.0
        settled = False
        while not settled and elapsed < (LIMIT_S if warmth.requests else self._warm_up_limit_s):
            turn_ns = time.monotonic_ns()
            for records in self._observed(_TURN_S):
                right = records[records["outcome"] == OUTCOME["ok"]]
                warmth.add(right["done"] - right["sent"])
            elapsed = time.monotonic() - begun
            backlog = self._outlook is not None and self._outlook.backlog(turn_ns)
            backlog_s = backlog_s + _TURN_S if backlog else 0.0
            if backlog_s >= _BACKLOG_S:
                break
            if elapsed - checked >= CHECK_EVERY_S:
                checked = elapsed
                settled = warmth.settled(self._warm_users(), elapsed, least_s)
        if not self._stationary():
            self._quiesce()
            self._meter.begin(self._sleep)
        self._warm = WarmUp(time.monotonic() - begun, warmth.requests, settled)
        return self._warm

    @property
    def _warm_up_limit_s(self) -> float:
        """Where nothing has been answered; else it is ``LIMIT_S``."""
        return max(LIMIT_S, 2 * self.spec.timeout_s)

    def _warm_users(self) -> int:
        return max(self.users, 1) if isinstance(self._load, ClosedLoop) else _OPEN_WARMUP_USERS

    def _stationary(self) -> bool:
        """Whether the window is cut out of what already runs."""
        if isinstance(self._load, ClosedLoop):
            return self._load.requests is None
        return self._load is not None and self._load.stationary

    def _quiesce(self) -> None:
        """Stop sending and wait for what is in flight."""
        self._feeder = None
        self.engine.set_end(0)
        deadline = time.monotonic() + self.spec.timeout_s + 1.0
        while self.engine.busy and time.monotonic() < deadline:
            deque(self.pump(_TURN_S), maxlen=0)
        deque(self.pump(0.0), maxlen=0)
        if isinstance(self._load, OpenLoop):
            # No user is to hold the connection of a stream whose frames come next.
            self.engine.set_users(0)

    def measure(self, start_ns: int) -> LevelOutput:
        """Measure one window from ``start_ns`` on, and wait for its last answers."""
        load, spec = self._load, self.spec
        assert load is not None
        length_s = spec.duration_s
        if isinstance(load, OpenLoop) and load.length_s is not None:
            length_s = load.length_s
        recorder = self._recorder(load, start_ns, length_s)
        self._enter(MEASURING)
        self._outlook = self._look_over(start_ns, length_s)
        if self._stationary():
            self._meter.begin_under_load(start_ns)
        before = _ServerUse.now(spec.server_pid)
        own_before_s, measured_from = own_cpu_time_s(), time.monotonic()
        self._release(load, recorder)
        while not self._window_over(load, recorder):
            turn_ns = time.monotonic_ns()
            for records in self._observed(_TURN_S):
                recorder.add(records)
            self._tell_due(recorder)
            self._lengthen(recorder, start_ns)
            self._end_if_lost(recorder, turn_ns)
        after = _ServerUse.now(spec.server_pid)
        own_s, elapsed_s = own_cpu_time_s() - own_before_s, time.monotonic() - measured_from
        self._collect_last(recorder)
        self._due_before += recorder.planned
        self._tell_due(None)
        self._enter(IDLE)
        timings, missing = self._meter.end(self._sleep)
        if spec.records is not None:
            np.save(spec.records / f"{self._level:g}.npy", recorder.kept())
        output = self._output(recorder, before.until(after), own_s, elapsed_s)
        told = {"server_timings": timings, "server_timings_missing": missing}
        return output.model_copy(update=told)

    def _recorder(self, load: Load, start_ns: int, length_s: float) -> Recorder:
        frames = None
        if isinstance(load, OpenLoop) and load.streams:
            names = self._own_names(load.streams)
            frames = FrameTally(names, self._samples, start_ns, load.streams.deadline_ns)
        return Recorder(
            start_ns,
            start_ns + int(length_s * _NS),
            samples_per_query=self.users if _is_query(load) else 1,
            board=self._board,
            keep=self.spec.records is not None,
            frames=frames,
        )

    def _enter(self, phase: int) -> None:
        if self._board:
            self._board.enter(phase, self._level)

    def _tell_due(self, recorder: Recorder | None) -> None:
        """In a closed loop a request is due when its user is free: what has ended was due."""
        now = 0 if recorder is None else recorder.planned
        if recorder is not None and self._feeder:
            now = self._feeder.due_since(recorder.start_ns)
        if self._board:
            self._board.set_due(self._due_before + now)

    def _release(self, load: Load, recorder: Recorder) -> None:
        """Say where the window ends, and start what waited for its beginning."""
        if isinstance(load, ClosedLoop) and load.requests is not None:
            mine = load.requests * (self.spec.index + 1) // self.spec.count
            mine -= load.requests * self.spec.index // self.spec.count
            recorder.end_ns = _NEVER_NS
            self._sleep(max(recorder.start_ns - time.monotonic_ns(), 0) / _NS)
            self.engine.set_limit(mine, recorder.start_ns)
            self.engine.set_end(_NEVER_NS)
            return
        if isinstance(load, OpenLoop) and not load.stationary:
            self._feeder = self._feed_from(load, recorder.start_ns)
        self.engine.set_end(recorder.end_ns)

    def _window_over(self, load: Load, recorder: Recorder) -> bool:
        if isinstance(load, ClosedLoop) and load.requests is not None:
            return recorder.planned > 0 and not self.engine.busy
        return time.monotonic_ns() >= recorder.end_ns

    def _lengthen(self, recorder: Recorder, start_ns: int) -> None:
        """Move the end on by a second while p99 is not known closely enough."""
        wanted = self.spec.until_confident
        left_ns = recorder.end_ns - time.monotonic_ns()
        # Too late is as bad as too early: the engine would have stopped for a moment.
        if wanted is None or not self._stationary() or not _TURN_S < left_ns / _NS < 0.5:
            return
        if recorder.end_ns - start_ns >= self.spec.limit_s * _NS:
            return
        # Imported here: scipy costs memory that most runs need not have.
        from loadtest.confidence import relative_width  # noqa: PLC0415

        width = relative_width(recorder.right_answers(), 0.99)
        if width is None or width > wanted:
            recorder.end_ns += int(_NS)
            self.engine.set_end(recorder.end_ns)

    def _end_if_lost(self, recorder: Recorder, turn_ns: int) -> None:
        """End the window now when what was asked of it cannot be met any more."""
        now_ns = time.monotonic_ns()
        if self._outlook is None or now_ns >= recorder.end_ns:
            return
        # All that ended before the turn has been drained in it; of what came later nobody knows.
        self._cut = self._outlook.lost(turn_ns)
        if self._cut is not None:
            recorder.end_ns = now_ns
            self.engine.set_end(now_ns)

    def _collect_last(self, recorder: Recorder) -> None:
        """Streams that fell behind go on for as long as an answer may take, and no longer."""
        self._feeder = None
        self._await_idle(recorder)
        if self.engine.busy:
            self.engine.give_up()
            self._await_idle(recorder)
        if self.engine.busy:
            self.engine.stop()
        for records in self.pump(0.0):
            recorder.add(records)

    def _await_idle(self, recorder: Recorder) -> None:
        deadline = time.monotonic() + self.spec.timeout_s + 1.0
        while self.engine.busy and time.monotonic() < deadline:
            for records in self.pump(_DRAIN_EVERY_S):
                recorder.add(records)

    def _observed(self, seconds: float) -> Iterator[Records]:
        for records in self.pump(seconds):
            if self._outlook:
                self._outlook.add(records)
            yield records

    def pump(self, seconds: float) -> Iterator[Records]:
        """For ``seconds``: keep the schedule fed and yield what has finished, batch by batch.

        Between batches the engine's thread gets the CPU: it and this one may share it.
        """
        until = time.monotonic() + seconds
        while True:
            if self._feeder:
                self._feeder.feed(self.engine)
            records = self.engine.drain()
            if len(records):
                yield records
            left = until - time.monotonic()
            if len(records) == BATCH:
                self._sleep(_BETWEEN_BATCHES_S)
            elif left <= 0:
                return
            else:
                self._sleep(min(left, _DRAIN_EVERY_S))

    def _output(
        self, recorder: Recorder, server: _ServerUse, own_s: float, elapsed_s: float
    ) -> LevelOutput:
        if recorder.end_ns == _NEVER_NS:
            recorder.end_ns = recorder.last_done_ns
        measured = recorder.finish()
        window_s = (recorder.end_ns - recorder.start_ns) / _NS
        # The sampling woke up a little late; what was used belongs to that longer stretch.
        scale = window_s / elapsed_s
        return LevelOutput(
            level=self._level,
            window_started_unix_s=unix_s(recorder.start_ns),
            window_s=window_s,
            warmup_s=self._warm.seconds,
            warmup_requests=self._warm.requests,
            settled=self._warm.settled,
            outcomes=measured.outcomes,
            completed=measured.completed,
            mean_in_flight=measured.in_flight_ns / (window_s * _NS),
            response_time=measured.response_time,
            service_time=measured.service_time,
            lateness=measured.lateness,
            first_byte=measured.first_byte,
            frames=measured.frames,
            client_cpu_s=own_s * scale,
            server_cpu_s=None if server.cpu_s is None else server.cpu_s * scale,
            server_rss_bytes=server.rss_bytes,
            lost_server_pids=tuple(sorted(server.lost)),
            lost=self.engine.lost + self.engine.unchecked,
            cut=self._cut,
        )


@dataclass(frozen=True)
class _ServerUse:
    """What a server's family of processes has used; nothing for one on another host."""

    cpu_s: float | None
    rss_bytes: int | None
    pids: frozenset[int]
    lost: frozenset[int] = frozenset()

    @classmethod
    def now(cls, pid: int | None) -> _ServerUse:
        if pid is None:
            return cls(None, None, frozenset())
        pids = frozenset(process.pid for process in family(pid))
        return cls(family_cpu_time_s(pid), family_rss_bytes(pid), pids)

    def until(self, later: _ServerUse) -> _ServerUse:
        if self.cpu_s is None or later.cpu_s is None:
            return later
        lost = self.pids - later.pids
        return _ServerUse(later.cpu_s - self.cpu_s, later.rss_bytes, later.pids, lost)


def _is_query(load: Load) -> bool:
    return isinstance(load, ClosedLoop) and load.together and load.users > 1
