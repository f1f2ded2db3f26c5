"""Several generators as one: Locust's master and workers agree on a clock and a start.

Only monotonic clocks are used. The master asks each worker for its clock a few times; the exchange
with the shortest way back gives the offset, to within half of that way (Cristian, *Probabilistic
clock synchronization*, 1989).
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import gevent
from gevent.event import Event
from locust.runners import MasterRunner, WorkerRunner

from loadtest.generator import Generator
from loadtest.trial import LevelOutput, TrialSpec, join
from serving.errors import InfersweepError, LoadError

_TRIAL, _CLOCK, _BEGIN, _MEASURE, _REPLY = (
    f"infersweep-{name}" for name in ("trial", "clock", "begin", "measure", "reply")
)
_CLOCK_QUESTIONS = 7
_LEAD_NS = 300_000_000
_POLL_S = 0.02
_LOAD_LIMIT_S = 60.0


@dataclass
class _Worker:
    """Attributes: ``offset_ns`` is its clock minus the master's, off by ``error_ns`` at most."""

    id: str
    offset_ns: int = 0
    error_ns: int = 1 << 62
    answer: dict[str, Any] | None = None
    answered: Event = field(default_factory=Event)


class Master:
    """Coordinates the workers of one Locust master; sends no load itself."""

    def __init__(self, runner: MasterRunner, spec: TrialSpec) -> None:
        self._runner = runner
        self._spec = spec
        self._workers: dict[str, _Worker] = {}
        runner.register_message(_REPLY, self._on_reply)

    @property
    def count(self) -> int:
        return self._spec.count

    def prepare(self) -> None:
        """Give every worker the trial and learn its clock.

        Raises:
            LoadError: a worker is lost or cannot load the trial.
        """
        while len(self._runner.clients) < self._spec.count:
            gevent.sleep(_POLL_S)
        self._workers = {identity: _Worker(identity) for identity in self._runner.clients}
        files = {f.name: f.read_bytes() for f in self._spec.payloads.iterdir()}
        for index, worker in enumerate(self._workers.values()):
            own = self._spec.model_copy(
                # A server's processes can be watched from its own host only, and once.
                update={"index": index, "server_pid": self._spec.server_pid if not index else None}
            )
            self._ask(worker, _TRIAL, {"spec": own.model_dump_json(), "files": files})
        self._wait(_LOAD_LIMIT_S)
        for _ in range(_CLOCK_QUESTIONS):
            for worker in self._workers.values():
                self._read_clock(worker)

    def _read_clock(self, worker: _Worker) -> None:
        asked_ns = time.monotonic_ns()
        self._ask(worker, _CLOCK, {})
        (answer,) = self._wait(_LOAD_LIMIT_S, [worker])
        way_ns = time.monotonic_ns() - asked_ns
        if way_ns // 2 < worker.error_ns:
            worker.error_ns = way_ns // 2
            worker.offset_ns = answer["clock_ns"] - asked_ns - way_ns // 2

    def users_ready(self, wanted: int) -> bool:
        """Whether Locust has all users running."""
        return int(self._runner.user_count) == wanted

    def run_level(self, level: float) -> LevelOutput:
        """Warm up everywhere, measure everywhere from one moment on, add up.

        Raises:
            LoadError: a worker is lost or fails.
        """
        spec = self._spec
        start_ns = time.monotonic_ns() + _LEAD_NS
        self._tell_all(_BEGIN, level, start_ns)
        self._wait(_LOAD_LIMIT_S + 3 * spec.timeout_s)
        start_ns = time.monotonic_ns() + _LEAD_NS
        self._tell_all(_MEASURE, level, start_ns)
        answers = self._wait(_LOAD_LIMIT_S + 4 * spec.timeout_s + spec.limit_s + spec.duration_s)
        outputs = [LevelOutput.model_validate_json(answer["output"]) for answer in answers]
        error_s = max(worker.error_ns for worker in self._workers.values()) / 1e9
        return join(outputs, error_s)

    def _tell_all(self, message: str, level: float, start_ns: int) -> None:
        for worker in self._workers.values():
            own = {"level": level, "start_ns": start_ns + worker.offset_ns}
            self._ask(worker, message, own)

    def _ask(self, worker: _Worker, message: str, data: Mapping[str, Any]) -> None:
        worker.answered.clear()
        self._runner.send_message(message, dict(data), client_id=worker.id)

    def _wait(self, limit_s: float, workers: list[_Worker] | None = None) -> list[dict[str, Any]]:
        waited = workers or list(self._workers.values())
        deadline = time.monotonic() + limit_s
        while not all(worker.answered.is_set() for worker in waited):
            self._require_all(deadline)
            gevent.sleep(_POLL_S if workers is None else 0.0005)
        answers = [worker.answer or {} for worker in waited]
        for answer in answers:
            if "fault" in answer:
                raise LoadError(answer["fault"], hint="The worker's log tells more.")
        return answers

    def _require_all(self, deadline: float) -> None:
        lost = set(self._workers) - {client.id for client in _living(self._runner)}
        if lost:
            raise LoadError(
                f"{len(lost)} of {len(self._workers)} load workers were lost ({min(lost)})",
                hint="The level they were measuring is void; run it again.",
            )
        if time.monotonic() > deadline:
            raise LoadError("the load workers did not answer in time", hint="Their logs tell more.")

    def _on_reply(self, environment: object, msg: Any, **_: object) -> None:  # noqa: ARG002
        worker = self._workers[msg.node_id]
        worker.answer = msg.data
        worker.answered.set()


def _living(runner: MasterRunner) -> Iterator[Any]:
    missing = {client.id for client in runner.clients.missing}
    return (client for client in runner.clients.all if client.id not in missing)


class Worker:
    """Answers the master's questions with a ``Generator`` of its own."""

    def __init__(self, runner: WorkerRunner) -> None:
        self._runner = runner
        self.generator: Generator | None = None
        for message, listener in (
            (_TRIAL, self._load),
            (_CLOCK, self._tell_clock),
            (_BEGIN, self._begin),
            (_MEASURE, self._measure),
        ):
            runner.register_message(message, listener, concurrent=True)

    def _reply(self, data: dict[str, Any]) -> None:
        self._runner.send_message(_REPLY, data)

    def _load(self, environment: Any, msg: Any, **_: object) -> None:
        folder = Path(tempfile.mkdtemp(prefix="infersweep-payloads-"))
        for name, content in msg.data["files"].items():
            (folder / Path(name).name).write_bytes(content)
        spec = TrialSpec.model_validate_json(msg.data["spec"])
        try:
            self.generator = Generator(
                spec.model_copy(update={"payloads": folder}), sleep=gevent.sleep
            )
        except (InfersweepError, OSError) as error:
            self._reply({"fault": str(error)})
            return
        finally:
            for file in folder.iterdir():
                file.unlink()
            with suppress(OSError):
                folder.rmdir()
        environment.user_classes[0].generator = self.generator
        self._reply({"loaded": True})

    def _tell_clock(self, **_: object) -> None:
        self._reply({"clock_ns": time.monotonic_ns()})

    def _begin(self, msg: Any, **_: object) -> None:
        assert self.generator is not None
        self.generator.begin(msg.data["level"], msg.data["start_ns"])
        self.generator.warm_up()
        self._reply({"warm": True})

    def _measure(self, msg: Any, **_: object) -> None:
        assert self.generator is not None
        output = self.generator.measure(msg.data["start_ns"])
        self._reply({"output": output.model_dump_json()})
