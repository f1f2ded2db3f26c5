"""A held-out load on the real server of a profile, and the prediction beside it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from loadtest.folder import ResultsFolder
from loadtest.objective import Percentile
from loadtest.plan.heldout import measured_of, predicted, schedule_of, verification
from loadtest.plan.record import Verification
from loadtest.plan.server import Server
from loadtest.resources.sampler import Sampler
from loadtest.results import Settings, Trial
from loadtest.rig import Ready, Rig
from loadtest.runner import generate
from loadtest.scenarios import OpenLoop, make_load
from loadtest.trials import PlannedTrial
from serving.errors import LoadError, ParityError

SPEED_S = 4.0
_LONGEST_WARM_UP_S = 60.0


@dataclass(frozen=True)
class HeldOut:
    """One load that the profile has not seen.

    Attributes:
        level: requests per second, or cameras.
        text: in words.
    """

    scenario: str
    level: float
    parameters: Mapping[str, str]
    rate_rps: float
    text: str
    seed: int


def verify(
    rig: Rig,
    profile: str,
    server: Server,
    loads: Sequence[HeldOut],
    objective: Percentile,
) -> Iterator[Verification]:
    """Run every load on a fresh server of the profile's setting; one result after the other.

    Raises:
        LoadError: the generator failed, or the server died.
        InfersweepError: the server cannot be launched.
    """
    rig.open()
    arm = rig.arm(rig.settings.backends[0])
    with Sampler(rig.folder.resources) as sampler, rig.ready(arm, sampler) as ready:
        if ready is None:
            raise ParityError(
                f"{arm.name} answers wrongly, so it is not loaded",
                hint="`infersweep check` shows the differences.",
            )
        for number, load in enumerate(loads, 1):
            before = _speed(rig, ready, sampler, server, number)
            rig.listener.stage(f"{arm.name}, held-out load {number} of {len(loads)}: {load.text}")
            trial = _run(rig, ready, sampler, load, number)
            after = _speed(rig, ready, sampler, server, number + len(loads))
            drift = (before + after) / 2 - 1
            yield _compare(rig.folder, profile, server, load, trial, objective, drift)


def settings_for(settings: Settings, load: HeldOut) -> Settings:
    told = {"scenario": load.scenario, "parameters": dict(load.parameters), "seed": load.seed}
    return settings.model_copy(update=told)


def _run(rig: Rig, ready: Ready, sampler: Sampler, load: HeldOut, number: int) -> Trial:
    planned = PlannedTrial(ready.arm.name, load.level, number)
    return _window(rig, ready, sampler, planned, settings_for(rig.settings, load))


def _speed(rig: Rig, ready: Ready, sampler: Sampler, server: Server, number: int) -> float:
    """Throughput of a closed loop that keeps the server full, over the profile's at as many users.

    Before and after each load, so that a machine that has changed is not taken for a wrong
    prediction.
    """
    users = 2 * server.scheduler.max_batch_size * server.scheduler.instances
    before = next(point for point in server.profile.sweep if point.users == users)
    settings = rig.settings.model_copy(
        update={"scenario": "closed", "parameters": {}, "duration_s": SPEED_S}
    )
    planned = PlannedTrial(ready.arm.name, float(users), number, 0)
    trial = _window(rig, ready, sampler, planned, settings)
    return trial.outcomes["ok"] / trial.window_s / before.requests_per_s


def _window(
    rig: Rig, ready: Ready, sampler: Sampler, planned: PlannedTrial, settings: Settings
) -> Trial:
    spec = rig.spec(ready, (planned.level,), planned.id, settings)
    outputs = list(generate(spec, rig.fleet, rig.log(planned.id)))
    trial = rig.keep(planned, outputs[0], ready, sampler, settings)
    if ready.server.ended is not None:
        raise LoadError(f"{ready.arm.name} {ready.server.ended}", hint="Its log is in the folder.")
    return trial


def _compare(
    folder: ResultsFolder,
    profile: str,
    server: Server,
    load: HeldOut,
    trial: Trial,
    objective: Percentile,
    drift: float,
) -> Verification:
    made = make_load(load.scenario, load.level, load.parameters, trial.window_s)
    assert isinstance(made, OpenLoop)
    longest_s = trial.window_s + trial.warmup_s + _LONGEST_WARM_UP_S
    arrivals = schedule_of(made, load.seed, longest_s)
    window = measured_of(folder.read_requests(trial.id), arrivals)
    return verification(
        backend=server.profile.backend,
        profile=profile,
        load=load.text,
        rate_rps=load.rate_rps,
        server=server,
        percentile=objective.name,
        expected=predicted(server, made, arrivals, window, objective.quantile, load.seed),
        seen=window.percentile_ms(objective.quantile),
        drift=drift,
        reasons=trial.reasons if trial.verdict == "INVALID" else (),
    )
