"""The generator process.

Run by ``loadtest.runner`` with ``--trial SPEC``: measures the levels of one scenario and writes
what it found. Run by hand, ``locust -f loadtest/locustfile.py -H URL`` loads a server for as long
as Locust's page or options say, and Locust's own statistics show it.
"""

from __future__ import annotations

import time
from argparse import ArgumentParser
from pathlib import Path
from typing import Any

import gevent
from locust import events
from locust.env import Environment
from locust.runners import MasterRunner

from loadtest import users
from loadtest.fleet import Master, Worker
from loadtest.generator import Generator
from loadtest.scenarios import SCENARIOS
from loadtest.trial import GeneratorFault, LevelOutput, TrialSpec
from loadtest.users import InferenceUser
from serving.errors import InfersweepError

__all__ = ["InferenceUser"]

_POLL_S = 0.02
_SPAWN_LIMIT_S = 60.0
_LEAD_NS = 20_000_000


@events.init_command_line_parser.add_listener
def _add_arguments(parser: ArgumentParser) -> None:
    group = parser.add_argument_group("infersweep")
    group.add_argument("--trial", help="trial specification, JSON; see loadtest.trial")
    group.add_argument(
        "--takes-trials", action="store_true", help="as a worker, measure what the master sends"
    )
    group.add_argument("--model", default="image_classifier", help="name in the model repository")
    group.add_argument("--model-root", default="", help="another model repository")
    group.add_argument("--scenario", default="closed", choices=sorted(SCENARIOS))
    group.add_argument("--level", type=float, default=1.0, help="rate of an open-loop scenario")


@events.init.add_listener
def _connect(environment: Environment, **_: Any) -> None:
    runner, options = environment.runner, environment.parsed_options
    if options.takes_trials:
        Worker(runner)
    elif options.trial:
        spec = TrialSpec.model_validate_json(Path(options.trial).read_text())
        # Not by name: Locust would take a shape in this module for one that every run wants.
        shape = users.Steps(spec.load_of)
        shape.runner = runner
        environment.shape_class = shape
        if isinstance(runner, MasterRunner):
            gevent.spawn(_conduct, environment, spec, shape, Master(runner, spec))
        else:
            InferenceUser.generator = Generator(spec, sleep=gevent.sleep)
            gevent.spawn(_conduct, environment, spec, shape, Alone(InferenceUser.generator))


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
    options = environment.parsed_options
    measured = options.trial or options.takes_trials
    if measured or isinstance(environment.runner, MasterRunner):
        return
    # Imported here: it needs the model itself, which a measuring generator need not hold.
    from loadtest.by_hand import load_by_hand  # noqa: PLC0415

    load_by_hand(environment)
