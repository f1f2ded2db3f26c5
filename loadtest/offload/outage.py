"""An outage of the link, simulated from what both sides' windows showed. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import median

import numpy as np
import numpy.typing as npt

from loadtest.camera_schedule import Cameras, FramePolicy
from loadtest.histogram import buckets, merge
from loadtest.links.crossing import request_time_s
from loadtest.links.profile import LinkProfile
from loadtest.offload.fallback import (
    Answers,
    Mode,
    Scene,
    longest_gap_ns,
    newest_answer,
    simulate,
)
from loadtest.offload.record import OutageRecord, OutcomeRecord, Spread
from loadtest.results import Histograms

RUNS = 20
LENGTH_S = 60.0
START_S = 20.0
_SHOWN_BEFORE_S, _SHOWN_AFTER_S = 1.0, 3.0
_STEP_S = 0.05
MODES: tuple[Mode, ...] = ("onboard", "offload", "fallback")

Samples = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Outage:
    """What is asked: cameras with their policy and deadline, and a link that is down for so long.

    Attributes:
        request_bytes, reply_bytes: of one frame.
    """

    cameras: Cameras
    policy: FramePolicy
    deadline_ns: int
    link: LinkProfile
    link_per_camera: bool
    request_bytes: int
    reply_bytes: int
    length_s: float
    seed: int

    @property
    def link_ms(self) -> float:
        """There and back for one frame on an empty link, without jitter and losses."""
        down_s = self.reply_bytes * 8 / self.link.downlink_bps
        return (request_time_s(self.link, self.request_bytes) + down_s) * 1e3


def service_samples(histograms: Sequence[Histograms]) -> Samples:
    """Service times of all right answers in ns, as finely as histograms keep them."""
    windows = (window for one in histograms for window in one.service_time)
    values, counts = buckets(merge(window["ok"] for window in windows if "ok" in window))
    return np.repeat(values, counts)


def at_the_server(through_link_ns: Samples, outage: Outage) -> Samples:
    """What is left of measured service times without the link's own; jitter stays in them."""
    return np.maximum(through_link_ns - round(outage.link_ms * 1e6), 0)


def simulated(outage: Outage, onboard_ns: Samples, offload_ns: Samples) -> OutageRecord:
    """One minute with the outage in it, met in three ways.

    ``onboard_ns`` and ``offload_ns`` are measured service times, the latter through the link.
    """
    remote_ns = at_the_server(offload_ns, outage)
    scene = Scene(
        cameras=outage.cameras,
        policy=outage.policy,
        deadline_ns=outage.deadline_ns,
        # Jitter and losses are in the times that are drawn.
        link=replace(outage.link, jitter_ms=0.0, loss_share=0.0),
        request_bytes=outage.request_bytes,
        reply_bytes=outage.reply_bytes,
        onboard_ns=onboard_ns.tolist(),
        remote_ns=remote_ns.tolist(),
        length_s=LENGTH_S,
        outage_s=(START_S, START_S + outage.length_s),
        link_per_camera=outage.link_per_camera,
    )
    outcomes = tuple(
        _outcome(mode, scene, [simulate(scene, mode, outage.seed + run) for run in range(RUNS)])
        for mode in MODES
    )
    return OutageRecord(
        length_s=LENGTH_S,
        start_s=START_S,
        outage_s=outage.length_s,
        runs=RUNS,
        remote_ms=float(np.median(remote_ns)) / 1e6,
        onboard_ms=float(np.median(onboard_ns)) / 1e6,
        outcomes=outcomes,
        sentence=_sentence(outage.length_s, *outcomes[1:]),
    )


def _outcome(mode: Mode, scene: Scene, runs: Sequence[Answers]) -> OutcomeRecord:
    deadline_ns = scene.deadline_ns
    start_ns, end_ns = (round(moment_s * 1e9) for moment_s in scene.outage_s)
    inside = [run.of((run.due_ns >= start_ns) & (run.due_ns < end_ns)) for run in runs]
    return OutcomeRecord(
        mode=mode,
        missed_share=_spread([run.missed_share(deadline_ns) for run in runs]),
        missed_in_outage_share=_spread([run.missed_share(deadline_ns) for run in inside]),
        unanswered_share=_spread([1 - float(run.answered.mean()) for run in runs]),
        onboard_share=_spread([float(run.onboard[run.answered].mean()) for run in runs]),
        age_p99_ms=_spread([_p99_ms(run.ages_ns) for run in runs]),
        longest_gap_ms=_spread([longest_gap_ns(run, scene.length_s) / 1e6 for run in runs]),
        line=_line(runs[0], scene),
    )


def _p99_ms(ages_ns: Samples) -> float:
    """By nearest rank."""
    ordered = np.sort(ages_ns)
    return float(ordered[math.ceil(0.99 * len(ordered)) - 1]) / 1e6


def _spread(values: Sequence[float]) -> Spread:
    ordered = sorted(values)
    beyond = len(ordered) // 20
    return Spread(value=median(ordered), low=ordered[beyond], high=ordered[-1 - beyond])


def _line(run: Answers, scene: Scene) -> tuple[tuple[float, float], ...]:
    step_s = max(_STEP_S, 1.5 / scene.cameras.fps)
    seconds, ages_ms = newest_answer(run, step_s)
    start_s, end_s = scene.outage_s
    shown = (seconds >= start_s - _SHOWN_BEFORE_S) & (seconds <= end_s + _SHOWN_AFTER_S)
    return tuple(
        (round(at_s, 4), round(age_ms, 2))
        for at_s, age_ms in zip(seconds[shown].tolist(), ages_ms[shown].tolist(), strict=True)
    )


def _sentence(outage_s: float, offload: OutcomeRecord, fallback: OutcomeRecord) -> str:
    told = [
        f"{name} misses {one.missed_share.value:.1%} of a minute's frames, with a longest gap of "
        f"{one.longest_gap_ms.value / 1e3:.2f} s"
        for name, one in (("offload alone", offload), ("falling back onboard", fallback))
    ]
    return f"With the link down for {outage_s:g} s, {told[0]}; {told[1]}."
