"""Cameras against a server that is too slow for them: what they drop, and that counts add up."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from loadtest.capacity import (
    Cameras,
    Fleet,
    FramePolicy,
    Frames,
    Scheduler,
    ServiceSamples,
    report,
    simulate,
)
from loadtest.payload import write_payloads
from loadtest.prepare import payloads_from
from loadtest.results import FramesRecord, Trial
from loadtest.runner import Fleet as Generators
from loadtest.runner import generate
from loadtest.trial import LevelOutput, TrialSpec
from loadtest.trials import PlannedTrial, trial_of
from serving.models.repository import Model
from serving.parity import reference_for
from serving.process import RunningProcess, free_port, wait_until
from serving.protocol import InferRequest, encode_response
from serving.readiness import get_status
from tests.sample_trials import settings

ROOT = Path(__file__).parents[2]
SERVICE_MS = 30
FPS, CAMERAS, SECONDS = 25, 2, 1.0
"""50 frames per second, of which the server answers 33."""


@pytest.fixture(scope="module")
def folder(tiny: Model, tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("cameras")
    payload = payloads_from(tiny, reference_for(tiny))[0]
    write_payloads(made / "payloads", [payload] * 3)
    wanted = InferRequest((), binary_default=True)
    body, length = encode_response("tiny", 1, wanted, [*payload.expected.values()])
    (made / "reply").write_bytes(body)
    (made / "length").write_text(str(length))
    return made


@pytest.fixture(scope="module")
def url(folder: Path) -> Iterator[str]:
    """A server that serves one frame after the other."""
    port = free_port()
    argv = [
        *(sys.executable, "-m", "benchmarks.truth_server", "--port", str(port), "--serial"),
        *("--distribution", "constant", "--mean-ms", str(SERVICE_MS)),
        *("--reply", str(folder / "reply"), "--log", str(folder / "log.npy")),
        *("--reply-header-length", (folder / "length").read_text()),
    ]
    address = f"http://127.0.0.1:{port}"
    with RunningProcess(argv, cpus=(0,), log=folder / "truth.log", cwd=ROOT) as process:
        wait_until(
            lambda: get_status(address, "/v2/health/ready") == 200,
            deadline_s=30,
            process=process,
            what="the truth server",
        )
        yield address


def outputs(
    folder: Path,
    url: str,
    scenario: str,
    levels: tuple[int, ...],
    parameters: dict[str, str],
    timeout_s: float = 2.0,
) -> list[LevelOutput]:
    spec = TrialSpec.model_validate(
        {
            "url": url,
            "model": "tiny",
            "payloads": folder / "payloads",
            "scenario": scenario,
            "parameters": parameters,
            "levels": levels,
            "duration_s": SECONDS,
            "timeout_s": timeout_s,
            "seed": 3,
            "values_every": 20,
            "server_pid": None,
            "output": folder / "output.jsonl",
        }
    )
    return [*generate(spec, Generators(cpus=(1,)), folder / "generator.log")]


def measured(folder: Path, url: str, scenario: str, **parameters: str) -> Trial:
    level = CAMERAS if scenario == "cameras" else 1
    (output,) = outputs(folder, url, scenario, (level,), parameters)
    asked = settings(scenario=scenario, parameters=parameters, levels=(level,), duration_s=SECONDS)
    planned = PlannedTrial("remote", level, 1)
    trial, _ = trial_of(
        planned, output, asked, client_cpus=1, server_cpus=1, server_ended=None, ceiling_rps=None
    )
    return trial


def frames_of(trial: Trial) -> FramesRecord:
    """The counts add up, over outcomes and over cameras."""
    told = trial.frames
    assert told is not None
    together = told.together
    assert together.frames == sum(trial.outcomes.values()) == trial.planned
    assert together.dropped == trial.planned - trial.outcomes["ok"]
    assert together.dropped_by_policy == trial.outcomes["dropped"] == together.dropped
    for name in ("frames", "missed", "dropped"):
        assert getattr(together, name) == sum(getattr(one, name) for one in told.streams)
    return told


def simulated_fps(policy: FramePolicy, deadline_ms: int) -> float:
    frames = Frames(policy, deadline_ms * 1_000_000 if policy == "drop-late" else 0)
    service = ServiceSamples.of({1: [SERVICE_MS * 1_000_000]})
    times, streams = Cameras(CAMERAS, FPS).all_arrivals(100, seed=3)
    found = simulate(Fleet(service, Scheduler(), frames=frames), times, 1, streams=streams)
    return report(found, CAMERAS, (10**9, 3 * 10**9)).together.delivered_fps


@pytest.mark.parametrize("policy", ["latest-only", "drop-late"])
def test_cameras_drop_what_a_slow_server_cannot_take(
    folder: Path, url: str, policy: FramePolicy
) -> None:
    trial = measured(folder, url, "cameras", fps=str(FPS), policy=policy, deadline_ms="90")
    told = frames_of(trial)
    assert trial.planned == FPS * CAMERAS * SECONDS
    assert (told.policy, told.deadline_ms) == (policy, 90)
    assert [one.frames for one in told.streams] == [FPS * SECONDS] * CAMERAS
    assert 0.1 * trial.planned < told.together.dropped < 0.6 * trial.planned
    assert told.together.delivered_fps == pytest.approx(simulated_fps(policy, 90), rel=0.25)
    assert trial.verdict == "VALID", trial.reasons


def test_cameras_that_fell_behind_do_not_hold_up_the_next_level(folder: Path, url: str) -> None:
    """Three cameras send 75 frames per second; what waits for longer than the limit is given up."""
    behind, alone = outputs(folder, url, "cameras", (3, 1), {"fps": str(FPS)}, timeout_s=0.5)
    assert behind.planned == 3 * FPS * SECONDS
    assert behind.outcomes["not_sent"] > 0
    assert alone.outcomes["ok"] == alone.planned == FPS * SECONDS
    assert [one.frames for one in alone.frames] == [FPS * SECONDS]


def test_a_flight_is_replayed_camera_by_camera(folder: Path, url: str) -> None:
    """Ten frames of one camera at once, of which nine wait; the other's come alone."""
    lines = [(100.0, "down")] * 10 + [(100.2 + number / 10, "front") for number in range(5)]
    trace = folder / "flight.csv"
    trace.write_text("timestamp,camera\n" + "".join(f"{at},{name}\n" for at, name in lines))
    given = {"trace": str(trace), "stream": "camera", "policy": "latest-only"}
    trial = measured(folder, url, "replay", **given, deadline_ms="1000")
    told = frames_of(trial)
    down, front = told.streams
    assert (down.name, down.frames, down.dropped, down.missed) == ("down", 10, 8, 8)
    assert (front.name, front.frames, front.dropped, front.missed) == ("front", 5, 0, 0)
    assert front.longest_gap_ms >= 200, "until its first frame came there was no answer"
    assert np.isclose(trial.window_s, 0.6 + 1e-3)
