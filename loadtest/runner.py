"""The trials of one scenario on one server: Locust processes on the client's CPUs, watched to their
end. One process, or a master with workers that merge their histograms.
"""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError

from loadtest.trial import GeneratorFault, LevelOutput, TrialSpec
from serving.errors import LoadError
from serving.process import RunningProcess, free_port

_LOCUSTFILE = Path(__file__).with_name("locustfile.py")
_START_ALLOWANCE_S = 60.0
_POLL_S = 0.05
_LEVEL_ALLOWANCE_S = 30.0
"""Spawning, warm-up and the clocks of one level, besides its window and its time limits."""


@dataclass(frozen=True)
class Fleet:
    """Who generates.

    Attributes:
        cpus: the CPUs of generators on this host; each process gets one of them in turn.
        processes: generators on this host; 0 when all workers come from other hosts.
        remote_workers: workers that connect from elsewhere.
        bind: address and port where the master listens, for ``remote_workers``.
    """

    cpus: tuple[int, ...]
    processes: int = 1
    remote_workers: int = 0
    bind: tuple[str, int] | None = None

    @property
    def count(self) -> int:
        return self.processes + self.remote_workers

    @property
    def cpu_count(self) -> int:
        """CPUs that generators run on; a worker elsewhere has one."""
        here = {self.cpus[index % len(self.cpus)] for index in range(self.processes)}
        return len(here) + self.remote_workers


def generate(spec: TrialSpec, fleet: Fleet, log: Path) -> Iterator[LevelOutput]:
    """Run every level of ``spec``; each is yielded as soon as it is measured.

    Raises:
        LoadError: the generator failed or a worker was lost; with the end of its log.
    """
    spec.output.unlink(missing_ok=True)
    if spec.driver == "loadgen":
        yield from _generate_by_loadgen(spec, fleet, log)
        return
    spec = spec.model_copy(update={"count": fleet.count})
    with _spec_file(spec) as spec_file, _processes(spec, fleet, spec_file, log) as generator:
        yield from _outputs(spec, generator)


def _generate_by_loadgen(spec: TrialSpec, fleet: Fleet, log: Path) -> Iterator[LevelOutput]:
    """One process per level: LoadGen runs once in a process, and gevent must not be in it."""
    for level in spec.levels:
        spec.output.unlink(missing_ok=True)
        own = spec.model_copy(update={"levels": (level,)})
        with _spec_file(own) as spec_file:
            argv = [sys.executable, "-m", "loadtest.loadgen", str(spec_file)]
            with _generator(argv, fleet.cpus[:1], log) as generator:
                yield from _outputs(own, generator)


@contextmanager
def _spec_file(spec: TrialSpec) -> Iterator[Path]:
    spec_file = spec.output.with_suffix(".spec.json")
    # Readable by its owner only: headers may carry a secret.
    spec_file.touch(0o600)
    spec_file.write_text(spec.model_dump_json())
    try:
        yield spec_file
    finally:
        spec_file.unlink()


def worker_command(host: str, port: int) -> list[str]:
    """The command of a generator that takes its orders from a master."""
    master = ("--master-host", host, "--master-port", str(port))
    return [*_locust(), "--worker", "--takes-trials", *master]


def _locust() -> list[str]:
    return [
        *(sys.executable, "-m", "locust", "-f", str(_LOCUSTFILE), "--headless"),
        *("--only-summary", "--loglevel", "WARNING"),
    ]


@contextmanager
def _processes(
    spec: TrialSpec, fleet: Fleet, spec_file: Path, log: Path
) -> Iterator[RunningProcess]:
    argv = [*_locust(), "--host", spec.url, "--trial", str(spec_file)]
    host, port = fleet.bind or ("127.0.0.1", 0)
    if fleet.count > 1 or fleet.remote_workers:
        port = port or free_port()
        argv += ["--master", "--master-bind-host", host, "--master-bind-port", str(port)]
        argv += ["--expect-workers", str(fleet.count)]
    with ExitStack() as stack:
        # Locust reads a locust.conf where it starts; the log's folder has none.
        cpus = fleet.cpus if "--master" in argv else fleet.cpus[:1]
        first = stack.enter_context(_generator(argv, cpus, log))
        for index in range(fleet.processes if "--master" in argv else 0):
            stack.enter_context(
                _generator(
                    worker_command("127.0.0.1" if host == "0.0.0.0" else host, port),
                    (fleet.cpus[index % len(fleet.cpus)],),
                    log.with_suffix(f".worker{index}.log"),
                )
            )
        yield first


def _generator(argv: Sequence[str], cpus: Sequence[int], log: Path) -> RunningProcess:
    # Nobody reads what an orphan measures, and Locust may hang when it is told to end twice.
    return RunningProcess(argv, cpus=cpus, log=log, cwd=log.parent, orphaned=signal.SIGKILL)


def _outputs(spec: TrialSpec, generator: RunningProcess) -> Iterator[LevelOutput]:
    longest_s = max(spec.duration_s, spec.limit_s if spec.until_confident else 0.0)
    for seen, _ in enumerate(spec.levels):
        deadline = time.monotonic() + _START_ALLOWANCE_S
        deadline += _LEVEL_ALLOWANCE_S + 6 * spec.timeout_s + longest_s
        while True:
            ended = not generator.alive
            lines = _lines(spec.output)
            if len(lines) > seen:
                break
            if ended or time.monotonic() > deadline:
                raise LoadError(
                    f"the load generator {generator.ended()} without a result",
                    hint=f"Its log {generator.log} ends with:\n{generator.log_tail()}",
                )
            time.sleep(_POLL_S)
        yield _parse(lines[seen])


def _lines(path: Path) -> Sequence[str]:
    """Whole lines only: the last may be half written."""
    return path.read_text(encoding="utf-8").split("\n")[:-1] if path.is_file() else []


def _parse(line: str) -> LevelOutput:
    try:
        return LevelOutput.model_validate_json(line)
    except ValidationError:
        fault = GeneratorFault.model_validate_json(line).fault
        raise LoadError(
            fault.rstrip("."), hint="Nothing of this level was kept; run the command again."
        ) from None
