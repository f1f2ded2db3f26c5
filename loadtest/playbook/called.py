"""Arms that are a function in a process of its own, timed there call by call.

For what happens inside one process, such as an engine's options, and for what a client does for
itself, such as encoding. The process is pinned, keeps still between its windows, and is told over a
socket when to measure.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from loadtest.confidence import sample_floor
from loadtest.folder import file_name
from loadtest.playbook.child import Child, child
from loadtest.playbook.comparing import answers_of
from loadtest.playbook.experiment import Bench, Lab, Start
from loadtest.playbook.record import Answers, WindowRecord
from loadtest.playbook.served import Served, ServedBench
from serving.models.repository import Model
from serving.process import family_rss_bytes
from serving.protocol import Array


@dataclass(frozen=True)
class Job:
    """What the process is told.

    Attributes:
        cpus: what it is pinned to.
        url: of the server that it is to call, where the arm has one.
        arguments: of the arm.
    """

    model: Model
    cpus: tuple[int, ...]
    url: str | None
    arguments: Mapping[str, Any]


@dataclass(frozen=True)
class Calls:
    """What the process does.

    Attributes:
        call: once for each number, from 0 on; it is this that is timed.
        answer: the model's outputs for one sample's inputs by the same way; ``None`` where the arm
            computes no answers of the model.
        rows: inferences in one call.
        before: once before each call, not timed.
        close: at the end.
        facts: what was found, such as versions.
    """

    call: Callable[[int], object]
    answer: Callable[[Mapping[str, Array]], Mapping[str, Array]] | None
    rows: int = 1
    before: Callable[[int], None] | None = None
    close: Callable[[], None] = lambda: None
    facts: Mapping[str, str] = field(default_factory=dict)


Build = Callable[[Job], Calls]


@dataclass(frozen=True)
class Called:
    """A function of a module, so that the process can import it.

    Attributes:
        build: makes what is called; runs in the process, which then counts as started.
        arguments: anything that can be pickled.
        against: a server that the calls go to; the process then runs on the client's CPUs.
        model: what is measured in place of the lab's model, such as a variant.
        everywhere: runs on all CPUs, the client's too; there is no client.
        variables: environment variables of the process.
        warm_up_s: calls before the first window; at least three.
    """

    name: str
    what: str
    build: Build
    arguments: Mapping[str, Any] = field(default_factory=dict)
    against: Served | None = None
    model: Callable[[Lab], Model] | None = None
    everywhere: bool = False
    variables: Mapping[str, str] = field(default_factory=dict)
    warm_up_s: float = 0.2

    def prepare(self, lab: Lab) -> Start:
        """Raises InfersweepError when its server or model cannot be had."""
        model = self.model(lab) if self.model else lab.model
        server = self.against.prepare(lab) if self.against else None
        return partial(self._started, lab, model, server)

    def _cpus(self, lab: Lab) -> tuple[int, ...]:
        if self.everywhere:
            return lab.all_cpus
        return lab.client_cpus if self.against else lab.server_cpus

    @contextmanager
    def _started(self, lab: Lab, model: Model, server: Start | None) -> Iterator[Bench]:
        cpus = self._cpus(lab)
        with ExitStack() as stack:
            behind: ServedBench | None = None
            if server is not None:
                bench = stack.enter_context(server())
                assert isinstance(bench, ServedBench)
                behind = bench
            began_s = time.monotonic()
            process = stack.enter_context(
                child(
                    "loadtest.playbook.caller",
                    name=self.name,
                    cpus=cpus,
                    env=self.variables,
                    log=lab.folder / f"{file_name(self.name)}.log",
                )
            )
            url = behind.url if behind else None
            # A model that has been read keeps what cannot be pickled.
            job = Job(Model(model.root, model.name), cpus, url, dict(self.arguments))
            ready = process.ask(("build", (self.build, job, self.warm_up_s)))
            yield CalledBench(self, lab, process, time.monotonic() - began_s, ready, behind)


@dataclass
class CalledBench:
    """A process that waits to be told."""

    arm: Called
    lab: Lab
    process: Child
    start_s: float | None
    ready: Mapping[str, Any]
    behind: ServedBench | None = None
    _answers: Answers | None = None

    @property
    def answers(self) -> Answers | None:
        """Asked for once; ``None`` where the arm computes none."""
        if self._answers is None and self.ready["answers"]:
            reference = self.lab.reference
            got = self.process.ask(("answers", [sample.inputs for sample in reference.samples]))
            self._answers = answers_of(self.lab.model, reference, got)
        return self._answers

    def window(self, start: int, repeat: int) -> WindowRecord:
        """Calls for as long as the lab's pace says, at least three.

        Raises:
            ServerError: the process died or its function failed.
        """
        took_ns = self.process.ask(("window", self.lab.pace.window_s))["took_ns"]
        took_ms = np.asarray(took_ns, np.float64) / 1e6
        enough = len(took_ms) >= sample_floor(0.99)
        return WindowRecord(
            start=start,
            repeat=repeat,
            count=len(took_ms),
            inferences_per_s=self.ready["rows"] * len(took_ms) / (took_ms.sum() / 1e3),
            p50_ms=float(np.median(took_ms)),
            p99_ms=float(np.quantile(took_ms, 0.99, method="higher")) if enough else None,
            slowest_ms=float(took_ms.max()),
        )

    def rss_bytes(self) -> int | None:
        """With the server that is called."""
        server = (self.behind.rss_bytes() or 0) if self.behind else 0
        return (family_rss_bytes(self.process.process.pid) + server) or None

    def facts(self) -> Mapping[str, str]:
        return dict(self.ready["facts"])
