"""The generator process.

Run by ``loadtest.runner`` with ``--trial SPEC``: measures the levels of one scenario and writes
what it found. Run by hand, ``locust -f loadtest/locustfile.py -H URL`` loads a server for as long
as Locust's page or options say, and Locust's own statistics show it.
"""

from __future__ import annotations

import os
import tempfile
import time
from argparse import ArgumentParser
from pathlib import Path
from typing import Any

import gevent
from locust import events
from locust.env import Environment
from locust.runners import MasterRunner, WorkerRunner

from loadtest import users
from loadtest.engine import engine_for
from loadtest.fleet import Master, Worker
from loadtest.generator import Generator
from loadtest.payload import payloads_from, write_payloads
from loadtest.results import OUTCOMES
from loadtest.scenarios import SCENARIOS, make_load
from loadtest.trial import GeneratorFault, LevelOutput, TrialSpec
from loadtest.users import InferenceUser
from serving.errors import InfersweepError
from serving.models.repository import find_model
from serving.parity import reference_for

__all__ = ["InferenceUser"]

_POLL_S = 0.02
_SPAWN_LIMIT_S = 60.0
_LEAD_NS = 20_000_000
_SHOW_EVERY_S = 0.5
_A_YEAR_S = 3e7


@events.init_command_line_parser.add_listener
def _add_arguments(parser: ArgumentParser) -> None:
    group = parser.add_argument_group("infersweep")
    group.add_argument("--trial", type=Path, help="trial specification, JSON; see loadtest.trial")
    group.add_argument("--model", default="image_classifier", help="name in the model repository")
    group.add_argument("--scenario", default="closed", choices=sorted(SCENARIOS))
    group.add_argument("--level", type=float, default=1.0, help="rate of an open-loop scenario")


@events.init.add_listener
def _connect(environment: Environment, **_: Any) -> None:
    runner, options = environment.runner, environment.parsed_options
    if isinstance(runner, WorkerRunner):
        environment.infersweep_worker = Worker(runner)
    elif options.trial:
        spec = TrialSpec.model_validate_json(options.trial.read_text())
        # Not by name: Locust would take a shape in this module for one that every run wants.
        shape = users.Steps(lambda level: _load_of(spec, level))
        shape.runner = runner
        environment.shape_class = shape
        if isinstance(runner, MasterRunner):
            gevent.spawn(_conduct, environment, spec, shape, Master(runner, spec))
        else:
            InferenceUser.generator = Generator(spec, sleep=gevent.sleep)
            gevent.spawn(_conduct, environment, spec, shape, Alone(InferenceUser.generator))


def _load_of(spec: TrialSpec, level: float) -> object:
    return make_load(spec.scenario, level, spec.parameters, spec.duration_s)


class Alone:
    """A single generator in this process, called as ``Master`` calls its workers."""

    count = 1

    def __init__(self, generator: Generator) -> None:
        self._generator = generator

    def prepare(self) -> None:
        """Nothing: there is one clock and one process."""

    def users_ready(self, wanted: int) -> bool:
        return self._generator.users == wanted

    def run_level(self, level: float) -> LevelOutput:
        self._generator.begin(level, time.monotonic_ns() + _LEAD_NS)
        self._generator.warm_up()
        return self._generator.measure(time.monotonic_ns() + _LEAD_NS)


def _conduct(
    environment: Environment, spec: TrialSpec, shape: users.Steps, generators: Alone | Master
) -> None:
    """Every level in turn: its users, its warm-up, its window, its line in the output."""
    with spec.output.open("a", encoding="utf-8") as stream:
        try:
            generators.prepare()
            for level in spec.levels:
                _await_users(shape, generators, level)
                stream.write(generators.run_level(level).model_dump_json() + "\n")
                stream.flush()
        except InfersweepError as error:
            stream.write(GeneratorFault(fault=str(error)).model_dump_json() + "\n")
            stream.flush()
    environment.runner.quit()


def _await_users(shape: users.Steps, generators: Alone | Master, level: float) -> None:
    wanted = shape.go_to(level, generators.count)
    deadline = time.monotonic() + _SPAWN_LIMIT_S
    while not generators.users_ready(wanted) and time.monotonic() < deadline:
        gevent.sleep(_POLL_S)


@events.test_start.add_listener
def _start_by_hand(environment: Environment, **_: Any) -> None:
    """Without a trial: load for as long as Locust says, on the model's own samples."""
    options = environment.parsed_options
    by_fleet = getattr(environment, "infersweep_worker", None) is not None
    if options.trial or isinstance(environment.runner, MasterRunner):
        return
    if by_fleet and environment.infersweep_worker.generator is not None:
        return
    model = find_model(options.model)
    with tempfile.TemporaryDirectory(prefix="infersweep-") as folder:
        write_payloads(Path(folder), payloads_from(model, reference_for(model)))
        spec = TrialSpec(
            url=environment.host,
            model=model.name,
            payloads=Path(folder),
            engine=engine_for(environment.host),
            scenario=options.scenario,
            levels=(options.level,),
            duration_s=_A_YEAR_S,
            timeout_s=10.0,
            seed=1,
            values_every=20,
            server_pid=None,
            output=Path(os.devnull),
        )
        InferenceUser.generator = Generator(spec, sleep=gevent.sleep)
    InferenceUser.generator.begin(options.level, time.monotonic_ns() + _LEAD_NS)
    gevent.spawn(_show, environment, InferenceUser.generator)


def _show(environment: Environment, generator: Generator) -> None:
    """Give Locust's statistics every request; they round to whole milliseconds."""
    name = f"/v2/models/{generator.spec.model}/infer"
    while environment.runner.state not in ("stopping", "stopped", "cleanup"):
        records = generator.pump(_SHOW_EVERY_S)
        times_ms = ((records["done"] - records["due"]) / 1e6).tolist()
        for response_ms, outcome in zip(times_ms, records["outcome"].tolist(), strict=True):
            environment.stats.log_request("POST", name, response_ms, 0)
            if outcome:
                environment.stats.log_error("POST", name, OUTCOMES[outcome])
    generator.engine.set_end(0)
