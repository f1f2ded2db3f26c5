"""What can be told to be impossible before anything is started."""

from __future__ import annotations

import time
from typing import Any

from loadtest.objective import Joules, Memory, Objectives
from loadtest.resources.gpu import Gpus, load_nvml
from loadtest.resources.rails import Rails, find_rails
from loadtest.resources.roots import Roots
from loadtest.resources.sampler import ANOTHER_HOST
from serving.backends import remote
from serving.backends.base import Launch
from serving.backends.registry import resolve
from serving.errors import MachineError, UsageError


def require_measurable(
    objectives: Objectives,
    label: str,
    timeout_s: float,
    roots: Roots | None = None,
    nvml: Any = None,
) -> None:
    """``roots`` and ``nvml`` are another machine's, for tests.

    Raises:
        UsageError: a limit is no shorter than the timeout, or the server's memory cannot be seen.
        MachineError: no power rail can be read, though joules are asked for.
    """
    longest = max(objectives.percentiles, key=lambda one: one.limit_ns)
    if longest.limit_ns >= timeout_s * 1e9:
        # A request that was given up before the limit leaves it open whether it was kept.
        raise UsageError(
            f"{longest.text} is no shorter than the timeout of {timeout_s:g} s",
            hint="Raise --timeout.",
        )
    if resolve(label)[0] is remote.BACKEND:
        _require_visible(objectives, label, ANOTHER_HOST)
    if any(isinstance(one, Joules) for one in objectives.each):
        _require_rails(roots or Roots(), nvml or load_nvml())


def require_visible(objectives: Objectives, launch: Launch) -> None:
    """Raises UsageError when memory is asked for and the launch hides the server's processes."""
    if launch.hidden:
        _require_visible(objectives, launch.label, launch.hidden)


def _require_visible(objectives: Objectives, label: str, why: str) -> None:
    if any(isinstance(one, Memory) for one in objectives.each):
        raise UsageError(
            f"the memory of {label} cannot be measured: {why}",
            hint="Leave memory out of the objectives.",
        )


def _require_rails(roots: Roots, nvml: Any) -> None:
    gpus = Gpus(nvml)
    try:
        reading = Rails([*find_rails(roots), *gpus.rails()]).read(time.monotonic())
    finally:
        gpus.close()
    if not reading.value:
        raise MachineError(
            f"energy cannot be measured here: {'; '.join(reading.unmeasurable.values())}",
            hint="Leave joules out of the objectives.",
        )
