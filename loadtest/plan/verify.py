"""A held-out load on the real server of a profile, and the prediction beside it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import mean

from loadtest.folder import ResultsFolder
from loadtest.objective import Percentile
from loadtest.plan.heldout import measured_of, predicted, schedule_of, verification
from loadtest.plan.record import Verification
from loadtest.plan.server import Server
from loadtest.resources.sampler import Sampler
from loadtest.results import Settings
from loadtest.rig import Ready, Rig
from loadtest.scenarios import OpenLoop, make_load
from loadtest.steadiness import UNSTEADY
from loadtest.trials import PlannedTrial
from loadtest.window import measure_window, require_right
from serving.errors import ResultsError

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
    with Sampler(rig.folder.resources) as sampler, rig.ready(arm, sampler) as found:
        ready = require_right(found, arm.name)
        for number, load in enumerate(loads, 1):
            _speed(rig, ready, sampler, server, number)
            rig.listener.stage(f"{arm.name}, held-out load {number} of {len(loads)}: {load.text}")
            _run(rig, ready, sampler, load, number)
            _speed(rig, ready, sampler, server, number + len(loads))
            yield compare(rig.folder, profile, server, loads, number, objective)


def compare(
    folder: ResultsFolder,
    profile: str,
    server: Server,
    loads: Sequence[HeldOut],
    number: int,
    objective: Percentile,
) -> Verification:
    """The ``number``-th load, from 1, as it lies in its folder, and the prediction for it.

    A window that is not steady counts: the prediction is of its very arrivals, which a queue that
    grows and shrinks belongs to.

    Raises:
        LoadError: it is not what was planned, or no request was answered.
        ResultsError: it was not measured to its end.
    """
    load = loads[number - 1]
    trials = {trial.id: trial for trial in folder.read_trials()}
    backend = server.profile.backend
    try:
        trial = trials[PlannedTrial(backend, load.level, number).id]
        speeds = [
            trials[_full(server, repeat).id].outcomes["ok"]
            / trials[_full(server, repeat).id].window_s
            for repeat in (number, number + len(loads))
        ]
    except KeyError as error:
        raise ResultsError(
            f"{folder.path} lacks window {error} of the held-out loads", hint="Run them again."
        ) from None
    made = make_load(load.scenario, load.level, load.parameters, trial.window_s)
    assert isinstance(made, OpenLoop)
    arrivals = schedule_of(made, load.seed, trial.window_s + trial.warmup_s + _LONGEST_WARM_UP_S)
    window = measured_of(folder.read_requests(trial.id), arrivals)
    faults = tuple(why for why in trial.reasons if not why.startswith(UNSTEADY))
    return verification(
        backend=backend,
        profile=profile,
        load=load.text,
        rate_rps=load.rate_rps,
        server=server,
        percentile=objective.name,
        expected=predicted(server, made, arrivals, window, objective.quantile, load.seed),
        seen=window.percentile_ms(objective.quantile),
        drift=mean(speeds) / _profiled_rps(server) - 1,
        reasons=faults,
    )


def settings_for(settings: Settings, load: HeldOut) -> Settings:
    told = {"scenario": load.scenario, "parameters": dict(load.parameters), "seed": load.seed}
    return settings.model_copy(update=told)


def _run(rig: Rig, ready: Ready, sampler: Sampler, load: HeldOut, number: int) -> None:
    planned = PlannedTrial(ready.arm.name, load.level, number)
    measure_window(rig, ready, sampler, planned, settings_for(rig.settings, load))


def _full(server: Server, repeat: int) -> PlannedTrial:
    """A closed loop that keeps the server full."""
    users = 2 * server.scheduler.max_batch_size * server.scheduler.instances
    return PlannedTrial(server.profile.backend, float(users), repeat, 0)


def _profiled_rps(server: Server) -> float:
    """Of the same closed loop, when the server was profiled."""
    users = _full(server, 1).level
    return next(point for point in server.profile.sweep if point.users == users).requests_per_s


def _speed(rig: Rig, ready: Ready, sampler: Sampler, server: Server, repeat: int) -> None:
    """How fast the server is, before and after each load.

    So a machine that has changed is not taken for a wrong prediction.
    """
    settings = rig.settings.model_copy(
        update={"scenario": "closed", "parameters": {}, "duration_s": SPEED_S}
    )
    measure_window(rig, ready, sampler, _full(server, repeat), settings)
