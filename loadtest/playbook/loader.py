"""The process that loads servers: ``python -m loadtest.playbook.loader SOCKET``.

It is the generator of every other run, with the number of users fixed and without Locust, whose
start would take longer than a window. It stays up for the whole playbook.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from loadtest.generator import Generator
from loadtest.playbook.child import child, serve
from loadtest.scenarios import ClosedLoop
from loadtest.trial import LevelOutput, TrialSpec
from loadtest.warmup import LEAST_S
from serving.errors import UsageError

Load = Callable[[TrialSpec], LevelOutput]
_LEAD_NS = 20_000_000
_AGAIN_S = 0.1


@contextmanager
def loader(cpus: Sequence[int], log: Path) -> Iterator[Load]:
    """Measures the one level of a closed loop on the native engine.

    What is given raises InfersweepError: the process died, or what the generator raises.
    """
    name = "the load generator"
    with child("loadtest.playbook.loader", name=name, cpus=cpus[:1], log=log) as process:
        yield process.ask


def no_load(spec: TrialSpec) -> LevelOutput:
    """For whoever only asks what could be measured. Raises UsageError."""
    raise UsageError(f"nothing loads {spec.url}", hint="Open a loader.")


_loaded: set[str] = set()
"""Servers that this process has loaded before: what is not warm there is only the connections."""


def window(spec: TrialSpec) -> LevelOutput:
    """Raises UsageError for what needs Locust or greenlets."""
    (level,) = spec.levels
    load = spec.load_of(level)
    if not isinstance(load, ClosedLoop) or spec.engine != "native" or spec.url.startswith("grpc"):
        raise UsageError(
            "this load needs the generator that Locust runs",
            hint="In a playbook, ask a server by the native engine in a closed loop.",
        )
    generator = Generator(spec, sleep=time.sleep)
    try:
        generator.set_users(load.users)
        generator.begin(level, time.monotonic_ns() + _LEAD_NS)
        generator.warm_up(_AGAIN_S if spec.url in _loaded else LEAST_S)
        _loaded.add(spec.url)
        return generator.measure(time.monotonic_ns() + _LEAD_NS)
    finally:
        generator.engine.stop()


if __name__ == "__main__":
    serve(window)
