"""From the windows of a results folder to ``offload.json``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import median
from urllib.parse import urlsplit

from loadtest.camera_schedule import Cameras, FramePolicy
from loadtest.folder import ResultsFolder
from loadtest.links.load import FACT
from loadtest.links.profile import LinkProfile
from loadtest.measures import UnmeasuredError, find_measure, samples_reader
from loadtest.offload.decision import counting, decide
from loadtest.offload.outage import LENGTH_S, Outage, service_samples, simulated
from loadtest.offload.record import (
    NAME,
    OffloadRecord,
    OutageRecord,
    RepeatRecord,
    Side,
    SideRecord,
)
from loadtest.payload import read_payloads
from loadtest.results import BackendRecord, Trial, Verdict
from loadtest.rig import Arm
from loadtest.validity import cause_of
from serving.backends import remote
from serving.backends.registry import resolve

_MEDIANS = (
    *("missed_share", "dropped_share", "age_p50_ms", "age_p99_ms", "delivered_fps"),
    *("longest_gap_ms", "joules_per_inference"),
)
_FEWEST_FRAMES = 30
_FELL_BEHIND = "the streams fell behind"
_BOTH_HERE = (
    "Both sides were served by the same CPUs of this machine, one after the other: this tells what "
    "the link costs, not how fast a device is beside a server."
)
_REAL_WAY = "The remote server's real way is in its times too, besides the link that was added."


@dataclass(frozen=True)
class Asked:
    """What ``offload`` is told, besides the settings of its windows.

    Attributes:
        outage_s: how long the link is down in the simulation; 0 for none.
    """

    cameras: int
    fps: float
    policy: FramePolicy
    deadline_ms: float
    link: LinkProfile
    outage_s: float


def conclude(folder: ResultsFolder, asked: Asked, arms: tuple[Arm, Arm]) -> OffloadRecord:
    """Derive the record from what is on disk, and write it."""
    manifest, trials = folder.read_manifest(), folder.read_trials()
    records = folder.read_backends()
    onboard = side_of("onboard", arms[0], records.get(arms[0].name), trials, folder)
    offload = side_of("offload", arms[1], records.get(arms[1].name), trials, folder)
    outage, missing = _outage(folder, asked, onboard, offload)
    record = OffloadRecord(
        manifest=manifest,
        cameras=asked.cameras,
        fps=asked.fps,
        policy=asked.policy,
        deadline_ms=asked.deadline_ms,
        sides=(onboard, offload),
        decision=decide(onboard, offload),
        outage=outage,
        outage_missing=missing,
        notes=tuple(_notes(onboard, offload)),
        complete=all(
            one.excluded or len(one.repeats) >= manifest.settings.repeats
            for one in (onboard, offload)
        ),
    )
    folder.write_derived(NAME, record)
    return record


def _notes(onboard: SideRecord, offload: SideRecord) -> Iterator[str]:
    if onboard.here and offload.here:
        yield _BOTH_HERE
    if not offload.here:
        yield _REAL_WAY


def side_of(
    side: Side,
    arm: Arm,
    known: BackendRecord | None,
    trials: Sequence[Trial],
    folder: ResultsFolder,
) -> SideRecord:
    """One side, with the medians over its repeats."""
    repeats = tuple(
        repeat_of(trial, folder)
        for trial in sorted(trials, key=lambda one: one.repeat)
        if trial.backend == arm.name
    )
    counted = [one for one in repeats if one.counts]
    medians = {
        name: median(values)
        for name in _MEDIANS
        if (values := [v for one in counted if (v := getattr(one, name)) is not None])
    }
    missing = next((one.joules_missing for one in counted if one.joules_missing), None)
    return SideRecord(
        side=side,
        arm=arm.name,
        backend=arm.backend,
        link=known.facts.get(FACT, "none") if known else "none",
        here=_is_here(arm.backend),
        repeats=repeats,
        excluded=known.excluded if known else None,
        joules_missing=missing,
        **medians,
    )


def _is_here(label: str) -> bool:
    backend, address = resolve(label)
    host = urlsplit(address).hostname if backend is remote.BACKEND else None
    return backend is not remote.BACKEND or host in ("127.0.0.1", "localhost", "::1")


def repeat_of(trial: Trial, folder: ResultsFolder) -> RepeatRecord:
    frames = trial.frames
    assert frames is not None, "a trial of cameras counts frames"
    together = frames.together
    joules, missing = None, None
    try:
        joules = find_measure("joules").of(trial, samples_reader(folder.read_histograms)).value
    except UnmeasuredError as error:
        missing = str(error)
    return RepeatRecord(
        trial=trial.id,
        frames=together.frames,
        missed_share=(together.missed or 0) / together.frames if together.frames else 1.0,
        dropped_share=together.dropped / together.frames if together.frames else 1.0,
        age_p50_ms=together.age_p50_ms,
        age_p99_ms=together.age_p99_ms,
        delivered_fps=together.delivered_fps / len(frames.streams),
        longest_gap_ms=together.longest_gap_ms,
        joules_per_inference=joules,
        joules_missing=missing,
        verdict=trial.verdict,
        reasons=trial.reasons,
        counts=does_count(trial.verdict, trial.reasons) and together.frames > 0,
    )


def does_count(verdict: Verdict, reasons: Sequence[str]) -> bool:
    """VALID, or INVALID since answers failed or fell behind: that is a result here.

    What such a window has besides, like being unsteady, comes of it.
    """
    if verdict == "VALID":
        return True
    causes = {"overload" if _FELL_BEHIND in one else cause_of(one) for one in reasons}
    return "overload" in causes and "beside" not in causes


def _outage(
    folder: ResultsFolder, asked: Asked, onboard: SideRecord, offload: SideRecord
) -> tuple[OutageRecord | None, str | None]:
    """The simulation, or why there is none."""
    if not asked.outage_s:
        return None, "none was asked for"
    if asked.fps * LENGTH_S < _FEWEST_FRAMES:
        return None, f"a minute at {asked.fps:g} fps has too few frames"
    samples = [
        service_samples([folder.read_histograms(one.trial) for one in counting(side)])
        for side in (onboard, offload)
    ]
    for side, seen in zip((onboard, offload), samples, strict=True):
        if not len(seen):
            return None, f"{side.side} has no right answers to draw service times from"
    settings = folder.read_manifest().settings
    payload = read_payloads(folder.path / "payloads")[0]
    outage = Outage(
        cameras=Cameras(asked.cameras, asked.fps),
        policy=asked.policy,
        deadline_ns=round(asked.deadline_ms * 1e6),
        link=asked.link,
        link_per_camera=settings.link_per_connection,
        request_bytes=len(payload.body),
        reply_bytes=sum(tensor.array.nbytes for tensor in payload.expected.values()),
        length_s=asked.outage_s,
        seed=settings.seed,
    )
    return simulated(outage, samples[0], samples[1]), None
