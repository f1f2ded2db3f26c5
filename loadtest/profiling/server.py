"""A server's stacks while it is under load, and what reading them costs it."""

from __future__ import annotations

import math
import shlex
import threading
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from loadtest.live import board_path, in_window
from loadtest.profiling.record import Function, Group, Observer, SeenProcess, ServerProfile
from loadtest.profiling.spy import (
    BEGUN,
    Told,
    command,
    fault_of,
    find_spy,
    reads_native,
    understood,
)
from loadtest.profiling.stacks import (
    GROUPS,
    WAITING,
    Stack,
    functions_of,
    name_of,
    parse,
    readable,
)
from loadtest.rig import Arm, Rig
from loadtest.runner import generate
from loadtest.trial import LevelOutput, TrialSpec
from loadtest.window import require_right
from serving.errors import LoadError, ServerError
from serving.process import RunningProcess, family

STACKS = "stacks.txt"
_NAME = "profiling"
_STARTS_S = 3.0
"""py-spy reads the symbols of all libraries before it begins."""
_ENDS_S = 60.0
_POLL_S = 0.05
_MOST_FUNCTIONS = 40


@dataclass(frozen=True)
class SampledLoad:
    """A closed loop of ``users``, and how often stacks are read meanwhile."""

    users: int
    rate_hz: int


@dataclass(frozen=True)
class Moments:
    """Of one sampling, in seconds since the epoch: its process began, read, had read, and ended."""

    started_s: float
    begun_s: float
    ended_s: float
    left_s: float


@dataclass
class Sampling:
    """py-spy in the middle of a load: as long without it, before and after, as with it.

    Attributes:
        moments: ``None`` until it has ended.
        processes: of the server, as pid, command and whether there is Python in it.
    """

    pid: int
    cpus: tuple[int, ...]
    seconds: int
    rate_hz: int
    out: Path
    log: Path
    native: bool
    moments: Moments | None = None
    processes: list[tuple[int, str, bool]] = field(default_factory=list)
    _over: threading.Event = field(default_factory=threading.Event)

    def follow(self, labels: Path) -> None:
        """Wait for the window of the generator with these ``labels``, then sample; in a thread."""
        while not in_window(board_path(labels, 0)):
            if self._over.wait(_POLL_S):
                return
        if self._over.wait(self.seconds / 2):
            return
        self.processes = [
            (process.pid, _command_of(process), _runs_python(process.pid))
            for process in family(self.pid)
        ]
        started_s = begun_s = time.time()
        argv = command(
            find_spy(),
            self.pid,
            self.out,
            seconds=self.seconds,
            rate_hz=self.rate_hz,
            native=self.native,
        )
        with RunningProcess(argv, cpus=self.cpus, log=self.log) as spy:
            end = time.monotonic() + self.seconds + _ENDS_S
            while spy.alive and time.monotonic() < end and not self._over.wait(_POLL_S):
                if begun_s == started_s and BEGUN in self.log.read_text("utf-8", "replace"):
                    begun_s = time.time()
        left_s = time.time()
        self.moments = Moments(started_s, begun_s, min(left_s, begun_s + self.seconds), left_s)

    def leave(self) -> None:
        """End it early."""
        self._over.set()


def profile_server(rig: Rig, arm: Arm, load: SampledLoad) -> ServerProfile:
    """One server, one closed loop, half of it with py-spy.

    Raises:
        InfersweepError: the server cannot be launched or read, answers wrongly or died; there is
            no py-spy; or the generator failed.
    """
    seconds = math.ceil(rig.settings.duration_s)
    native = reads_native(find_spy())
    settings = rig.settings.model_copy(update={"duration_s": 2.0 * seconds + _STARTS_S})
    with rig.ready(arm, None) as found:
        ready = require_right(found, arm.name)
        process, hidden = ready.server.process, ready.server.launch.hidden
        if process is None or hidden:
            raise ServerError(
                f"the processes of {arm.name} cannot be seen: {hidden or 'they run elsewhere'}",
                hint="Profile the server where it runs.",
            )
        log = rig.folder.logs / "py-spy.log"
        sampling = Sampling(
            process.pid,
            rig.settings.client_cpus,
            seconds,
            load.rate_hz,
            rig.folder.path / STACKS,
            log,
            native,
        )
        rig.listener.stage(f"sampling {arm.name} under load, {settings.duration_s:.0f} s")
        spec = rig.spec(ready, (float(load.users),), _NAME, settings)
        output = _under_load(rig, spec, sampling)
        if ready.server.ended is not None:
            raise LoadError(
                f"{arm.name} {ready.server.ended} while it was sampled",
                hint=f"Its log lies in {rig.folder.logs}.",
            )
    printed = log.read_text("utf-8", "replace") if log.is_file() else ""
    told = understood(printed)
    if told is None or sampling.moments is None or not sampling.out.is_file():
        python = any(found for _, _, found in sampling.processes)
        raise fault_of(printed, process.pid, python=python)
    return _profile(arm, load.users, sampling, sampling.moments, told, output)


def _under_load(rig: Rig, spec: TrialSpec, sampling: Sampling) -> LevelOutput:
    if spec.labels is None:
        raise LoadError(
            "the generator does not tell when its window begins", hint="Choose another --out."
        )
    with ThreadPoolExecutor(1) as pool:
        beside = pool.submit(sampling.follow, spec.labels)
        try:
            (output,) = generate(spec, rig.fleet, rig.log(_NAME))
            wait([beside], timeout=sampling.seconds + _ENDS_S)
        finally:
            sampling.leave()
        beside.result()
    return output


def _command_of(process: psutil.Process) -> str:
    try:
        return shlex.join(process.cmdline())
    except psutil.Error:
        return "?"


def _runs_python(pid: int) -> bool:
    """Whether an interpreter is its program or a library in it."""
    try:
        program = Path(f"/proc/{pid}/exe").resolve().name
        return program.startswith("python") or "libpython" in Path(f"/proc/{pid}/maps").read_text()
    except OSError:
        return False


def _profile(
    arm: Arm, users: int, sampling: Sampling, moments: Moments, told: Told, output: LevelOutput
) -> ServerProfile:
    stacks = parse(sampling.out.read_text("utf-8", "replace"))
    counts = Counter[str]()
    for stack in stacks:
        counts[stack.group] += stack.count
    busy = counts.total() - counts[WAITING]
    return ServerProfile(
        backend=arm.name,
        users=users,
        rate_hz=sampling.rate_hz,
        sampled_s=moments.ended_s - moments.begun_s,
        native=sampling.native,
        samples=counts.total(),
        waiting=counts[WAITING],
        errors=told.errors,
        behind_s=told.behind_s,
        groups=groups_of(counts, busy),
        functions=_functions(stacks, busy),
        processes=seen(sampling.processes, stacks),
        observer=observer_of(output.completed, output.window_started_unix_s, moments),
        stacks=STACKS,
    )


def groups_of(counts: Counter[str], busy: int) -> tuple[Group, ...]:
    """Those that were seen, the most sampled first."""
    found = [Group(name=g, samples=counts[g], share=counts[g] / busy) for g in GROUPS if counts[g]]
    return tuple(sorted(found, key=lambda group: -group.samples))


def _functions(stacks: Sequence[Stack], busy: int) -> tuple[Function, ...]:
    return tuple(
        Function(name=readable(name), group=group, samples=count, share=count / busy)
        for name, group, count in functions_of(stacks)[:_MOST_FUNCTIONS]
    )


def seen(
    processes: Sequence[tuple[int, str, bool]], stacks: Sequence[Stack]
) -> tuple[SeenProcess, ...]:
    """Every process of the server with its busy samples, or why there are none."""
    busy, known = Counter[int](), set[int]()
    for stack in stacks:
        if stack.processes:
            pid = stack.processes[-1][0]
            known.add(pid)
            busy[pid] += stack.count if stack.group != WAITING else 0
    return tuple(
        SeenProcess(pid=pid, name=name_of(told), samples=busy[pid], note=_note(pid, python, known))
        for pid, told, python in processes
    )


def _note(pid: int, python: bool, known: set[int]) -> str:
    if pid in known:
        return ""
    return "slept all the time" if python else "no Python: what it does is not seen"


def observer_of(
    completed: Sequence[int], window_started_s: float, moments: Moments
) -> Observer | None:
    """Right answers in the whole seconds of sampling against those before and after it."""
    before = completed[: math.floor(moments.started_s - window_started_s)]
    begun, ended = moments.begun_s - window_started_s, moments.ended_s - window_started_s
    during = completed[math.ceil(begun) : math.floor(ended)]
    after = completed[math.ceil(moments.left_s - window_started_s) :]
    if not before or not during or not after or not sum(before) + sum(after):
        return None
    sampled_rps = sum(during) / len(during)
    alone_rps = (sum(before) + sum(after)) / (len(before) + len(after))
    return Observer(
        before_rps=sum(before) / len(before),
        sampled_rps=sampled_rps,
        after_rps=sum(after) / len(after),
        ratio=sampled_rps / alone_rps,
    )
