"""What servers are given: a model under one configuration, and the one request of its load."""

from __future__ import annotations

import socket
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tritonclient.grpc import model_config_pb2 as schema

from benchmarks.load import SERVER_CPU
from benchmarks.peers import Target
from loadtest.payload import Payload
from loadtest.prepare import payloads_from
from serving.deployment import Placement, Server, running
from serving.errors import ParityError
from serving.models.config import load_message, render
from serving.models.repository import Model
from serving.parity import Reference, check_parity, reference_for
from serving.process import RunningProcess, free_port, wait_until

OURS = "onnxruntime"
FEW, MANY = 4, 32
"""Users: for a model that fills the core by itself, and for one that leaves it to the server."""

Change = Callable[[schema.ModelConfig], None]


def joined(rows: int, *, delay_us: int = 0) -> Change:
    """Dynamic batching of up to ``rows``, each waiting at most ``delay_us`` for company."""

    def change(config: schema.ModelConfig) -> None:
        config.max_batch_size = rows
        config.dynamic_batching.max_queue_delay_microseconds = delay_us

    return change


def alone(config: schema.ModelConfig) -> None:
    """No dynamic batching: each request is an inference of its own."""
    config.ClearField("dynamic_batching")


def queue_of(requests: int) -> Change:
    """What finds so many requests waiting is refused."""

    def change(config: schema.ModelConfig) -> None:
        config.dynamic_batching.default_queue_policy.max_queue_size = requests

    return change


def checked(rule: str) -> Change:
    """Every input must keep ``rule``: ``finite`` or ``LOW..HIGH``."""

    def change(config: schema.ModelConfig) -> None:
        for item in config.input:
            config.parameters[f"check.{item.name}"].string_value = rule

    return change


def changed(model: Model, root: Path, *changes: Change) -> Model:
    """The same model file in a repository at ``root``, under a changed ``config.pbtxt``."""
    message = load_message(model.folder / "config.pbtxt")
    for change in changes:
        change(message)
    found = Model(root, model.name)
    found.folder.mkdir(parents=True)
    (found.folder / "config.pbtxt").write_text(render(message), encoding="utf-8")
    for version in model.versions:
        source = (model.folder / str(version)).resolve()
        (found.folder / str(version)).symlink_to(source, target_is_directory=True)
    return found


@dataclass(frozen=True)
class Case:
    """One model under one configuration, what it must answer, and the request that all get.

    Attributes:
        folder: scratch of this case alone.
    """

    model: Model
    reference: Reference
    payload: Payload
    folder: Path

    @classmethod
    def of(cls, model: Model, folder: Path, *changes: Change) -> Case:
        placed = changed(model, folder / "models", *changes)
        reference = reference_for(placed)
        return cls(placed, reference, payloads_from(placed, reference)[0], folder)

    def target(self, url: str) -> Target:
        return Target(url, self.model.name, self.payload.body, self.payload.headers)

    @contextmanager
    def started(self, label: str) -> Iterator[Server]:
        """The backend ``label`` on the server's CPU, ready and not yet asked anything.

        Raises:
            InfersweepError: it does not start.
        """
        placement = Placement((SERVER_CPU,), 2)
        with running(
            label, self.model, placement, repository=self.folder / label, logs=self.folder
        ) as server:
            yield server

    @contextmanager
    def served(self, label: str) -> Iterator[Server]:
        """The same, once its answers have been found right.

        Raises:
            ParityError: it answers something else.
            InfersweepError: it does not start.
        """
        with self.started(label) as server:
            self.require_right(server)
            yield server

    def require_right(self, server: Server) -> None:
        """Raises ParityError when ``server`` answers something else than the reference session."""
        parity = check_parity(server.url, self.model, self.reference)
        if not parity.passed:
            raise ParityError(
                f"{server.launch.label} answers {self.model.name} wrongly: {parity.detail}",
                hint="Nothing is measured of a server that is wrong.",
            )


@contextmanager
def bare_loop(case: Case) -> Iterator[tuple[str, RunningProcess]]:
    """Address and process of the bare loop around the case's session, on the server's CPU."""
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    argv = [sys.executable, "-m", "benchmarks.limit", "--model", str(case.model.file)]
    with RunningProcess(
        [*argv, "--port", str(port)], cpus=(SERVER_CPU,), log=case.folder / "limit.log"
    ) as process:
        wait_until(lambda: _listens(port), deadline_s=30.0, process=process, what="the bare loop")
        yield url, process


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0
