"""Load by hand, for people who know Locust: its page and statistics, our requests and engine."""

from __future__ import annotations

import os
import tempfile
import time
from pathlib import Path

import gevent
from locust.env import Environment

from loadtest.engine import engine_for
from loadtest.generator import Generator
from loadtest.payload import write_payloads
from loadtest.prepare import payloads_from
from loadtest.results import OUTCOMES
from loadtest.trial import TrialSpec
from loadtest.users import InferenceUser
from serving.models.repository import DEFAULT_ROOT, find_model
from serving.parity import reference_for

_LEAD_NS = 20_000_000
_SHOW_EVERY_S = 0.5
_A_YEAR_S = 3e7
_OVER = ("stopping", "stopped", "cleanup")


def load_by_hand(environment: Environment) -> None:
    """Load for as long as Locust's page or options say, on the model's own samples."""
    options = environment.parsed_options
    root = Path(options.model_root) if options.model_root else DEFAULT_ROOT
    model = find_model(options.model, root)
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
    while environment.runner.state not in _OVER:
        for records in generator.pump(_SHOW_EVERY_S):
            times_ms = ((records["done"] - records["due"]) / 1e6).tolist()
            for response_ms, outcome in zip(times_ms, records["outcome"].tolist(), strict=True):
                environment.stats.log_request("POST", name, response_ms, 0)
                if outcome:
                    environment.stats.log_error("POST", name, OUTCOMES[outcome])
    generator.engine.set_end(0)
