"""Made-up soaks: windows whose rates, clocks and temperatures are given."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from loadtest.resources.record import (
    BoardRecord,
    ClockUse,
    CoolerUse,
    Energy,
    Gauge,
    RailUse,
    ResourceUse,
)
from loadtest.results import Histograms, Trial
from loadtest.soak.conclude import Measured, conclude
from loadtest.soak.record import Asked, SoakRecord
from loadtest.trials import PlannedTrial, trial_of
from tests import sample_trials as made

WINDOW_S = 2.0
GAP_S = 0.5
IDLE_W = 4.0
BOARD = BoardRecord(model="A board <of> ours", l4t="36.4.3")


@dataclass(frozen=True)
class Hot:
    """How one window went.

    Attributes:
        state: of the cooling device that lowers clocks.
        watts: ``None`` where no rail can be read.
        sensors: whether anything beside the trial was read at all.
    """

    rate: int
    latency_ms: float = 5.0
    celsius: float = 50.0
    ghz: float = 1.5
    state: int = 0
    watts: float | None = 10.0
    sensors: bool = True
    mode: str = "25W"
    rss_bytes: int = 10**8
    reasons: tuple[str, ...] = ()


@dataclass
class MadeSoak:
    """Windows one after another, with a warm-up before each."""

    windows: Sequence[Hot]
    planned: int | None = None
    scenario: str = "closed"
    kept: dict[str, Histograms] = field(default_factory=dict)

    def record(self, asked: Asked) -> SoakRecord:
        trials = list(self._trials())
        manifest = made.manifest(
            backends=("onnxruntime",),
            levels=(16,),
            scenario=self.scenario,
            duration_s=WINDOW_S,
            repeats=self.planned or len(self.windows),
        )
        return conclude(Measured(manifest, trials, (), self.kept.__getitem__), asked, BOARD)

    def _trials(self) -> Iterator[Trial]:
        for number, window in enumerate(self.windows):
            started_s = made.STARTED_UNIX_S + (number + 1) * GAP_S + number * WINDOW_S
            count = round(window.rate * WINDOW_S)
            output = made.output(
                [round(window.latency_ms * made.MS)] * count,
                window_s=WINDOW_S,
                users=16,
                window_started_unix_s=started_s,
                warmup_s=GAP_S,
                server_rss_bytes=window.rss_bytes,
            )
            trial, histograms = trial_of(
                PlannedTrial("onnxruntime", 16, number + 1),
                output,
                made.settings(duration_s=WINDOW_S, levels=(16,)),
                client_cpus=1,
                server_cpus=1,
                server_ended=None,
                ceiling_rps=None,
            )
            self.kept[trial.id] = histograms
            yield trial.model_copy(
                update={
                    "resources": _use(window) if window.sensors else None,
                    "verdict": "INVALID" if window.reasons else "VALID",
                    "reasons": window.reasons,
                }
            )


def _use(window: Hot) -> ResourceUse:
    why = {} if window.watts else {"energy": "no rail"}
    return ResourceUse(
        window_s=WINDOW_S,
        samples=2,
        clocks={
            "cpu:policy0": ClockUse(
                hz=_still(window.ghz * 1e9), limit_hz=_still(1.5e9), rated_hz=2e9
            )
        },
        zones={"cpu-thermal": _still(window.celsius)},
        coolers={
            "cpu-throttle-alert": CoolerUse(state=_still(window.state), highest=1),
            "pwm-fan": CoolerUse(state=_still(2), highest=3),
        },
        rails={} if window.watts is None else {"ina3221:VDD_IN": _rail(window.watts)},
        energy=None if window.watts is None else _energy(window.watts),
        power_modes=(window.mode,),
        unmeasurable=why,
    )


def _still(value: float) -> Gauge:
    return Gauge(mean=value, lowest=value, highest=value)


def _rail(watts: float) -> RailUse:
    return RailUse(watts=watts, joules=watts * WINDOW_S)


def _energy(watts: float) -> Energy:
    return Energy(
        rails=("ina3221:VDD_IN",),
        missing={},
        joules=watts * WINDOW_S,
        joules_per_inference=None,
        idle_watts=IDLE_W,
        net_joules_per_inference=None,
    )
