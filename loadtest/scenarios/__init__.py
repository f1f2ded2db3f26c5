"""Arrival scenarios: one file each, one line in the registry."""

from __future__ import annotations

from collections.abc import Mapping

from pydantic import ValidationError

from loadtest.results import Settings
from loadtest.scenarios import (
    bursty,
    cameras,
    closed,
    constant,
    multi_stream,
    offline,
    ramp,
    replay,
    server,
    single_stream,
    soak,
    spike,
    streams,
)
from loadtest.scenarios.base import ClosedLoop, Load, OpenLoop, Parameters, Scenario, Streams
from serving.errors import UsageError

SCENARIOS: Mapping[str, Scenario] = {
    module.SCENARIO.name: module.SCENARIO
    for module in (
        *(closed, single_stream, multi_stream, server, offline),
        *(constant, ramp, spike, bursty, soak, replay, streams, cameras),
    )
}

__all__ = [
    "SCENARIOS",
    "ClosedLoop",
    "Load",
    "OpenLoop",
    "Scenario",
    "Streams",
    "find_scenario",
    "is_closed",
    "make_load",
]


def find_scenario(name: str) -> Scenario:
    """Raises UsageError for an unknown name."""
    if name not in SCENARIOS:
        raise UsageError(f"there is no scenario {name!r}", hint=f"Choose {', '.join(SCENARIOS)}.")
    return SCENARIOS[name]


def check_parameters(scenario: Scenario, given: Mapping[str, object]) -> Parameters:
    """``given`` as the scenario's own parameters.

    Raises:
        UsageError: an unknown name, a missing one, or a value that does not fit.
    """
    try:
        return scenario.parameters.model_validate(given)
    except ValidationError as error:
        first = error.errors()[0]
        known = ", ".join(scenario.parameters.model_fields) or "none"
        name = ".".join(map(str, first["loc"]))
        raise UsageError(
            f"scenario {scenario.name}: parameter {name!r}: {first['msg']}",
            hint=f"Its parameters: {known}.",
        ) from None


def make_load(name: str, level: float, given: Mapping[str, object], duration_s: float) -> Load:
    """The load of one level.

    Raises:
        UsageError: unknown scenario or parameter, or values that make no load.
    """
    scenario = find_scenario(name)
    whole = scenario.whole_levels and level != int(level)
    if not 0 < level < float("inf") or whole:
        kind = "a whole number" if scenario.whole_levels else "a number"
        raise UsageError(
            f"scenario {name}: {level:g} {scenario.level_name}",
            hint=f"Give {kind} above 0.",
        )
    return scenario.make(level, check_parameters(scenario, given), duration_s)


def is_closed(settings: Settings) -> bool:
    """Whether a run's load waits for answers; told also of one whose files are gone."""
    try:
        load = make_load(
            settings.scenario,
            next(iter(settings.levels), 1.0),
            settings.parameters,
            settings.duration_s,
        )
    except UsageError:
        # Only an open loop reads a file.
        return settings.scenario != replay.SCENARIO.name
    return isinstance(load, ClosedLoop)
