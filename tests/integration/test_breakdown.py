"""Where the time of requests to real servers goes, by their own counters."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from onnx import helper, numpy_helper

from loadtest import calibration
from loadtest.breakdown import TOLERATED_SHARE, breakdown_of
from loadtest.coldstart import ColdStarts
from loadtest.explained import Breakdown, Start
from loadtest.payload import write_payloads
from loadtest.prepare import payloads_from
from loadtest.runner import Fleet, generate
from loadtest.timings import source_of
from loadtest.trial import TrialSpec
from loadtest.trials import PlannedTrial, trial_of
from serving.deployment import Placement, running
from serving.models.repository import Model
from serving.parity import reference_for
from tests.sample_models import Port, write_model
from tests.sample_trials import settings

FLEET = Fleet(cpus=(1,))
WINDOW_S = 0.5
WIDTH, LAYERS = 1024, 16


@pytest.fixture(scope="module")
def deep(tmp_path_factory: pytest.TempPathFactory) -> Model:
    """Computes for about a millisecond, so that a busy machine leaves something to be seen."""
    weights = np.random.default_rng(1).standard_normal((WIDTH, WIDTH)).astype(np.float32)
    # Values neither grow nor vanish on their way through the layers.
    weights /= math.sqrt(WIDTH)
    names = ["x", *(f"h{layer}" for layer in range(1, LAYERS)), "y"]
    nodes = [
        helper.make_node("Constant", [], ["w"], value=numpy_helper.from_array(weights)),
        *(helper.make_node("MatMul", [a, "w"], [b]) for a, b in pairwise(names)),
    ]
    x, y = Port("x", "FP32", (WIDTH,)), Port("y", "FP32", (WIDTH,))
    root = tmp_path_factory.mktemp("deep")
    model = write_model(root, "deep", nodes, [x], [y], max_batch_size=8)
    with (model.folder / "config.pbtxt").open("a") as stream:
        stream.write("dynamic_batching { }\n")
    return model


@pytest.fixture(scope="module")
def floor_ms(deep: Model, tmp_path_factory: pytest.TempPathFactory) -> float:
    """Measured anew, with no more windows than it takes."""
    kept = tmp_path_factory.mktemp("kept") / "ceilings.json"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(calibration, "_file", lambda: kept)
        patch.setattr(calibration, "LEVELS", (1.0,))
        calibration.measure_ceilings(deep, settings(), FLEET, usable_cpus=2)
        found = calibration.floor_for(deep, settings(), FLEET)
    assert found is not None
    return found


def measured(
    label: str, model: Model, levels: Sequence[float], folder: Path, floor_ms: float
) -> tuple[Start, list[Breakdown]]:
    """A server's start, and where the time went at each level of a closed loop."""
    payloads = payloads_from(model, reference_for(model))
    write_payloads(folder / "payloads", payloads)
    placement = Placement((0,), 2)
    found = []
    with running(label, model, placement, repository=folder / "r", logs=folder) as server:
        start = ColdStarts().started(label, server, payloads[0], values=True)
        assert start is not None
        spec = TrialSpec(
            url=server.url,
            model=model.name,
            payloads=folder / "payloads",
            levels=tuple(levels),
            duration_s=WINDOW_S,
            timeout_s=10.0,
            seed=1,
            values_every=20,
            server_pid=None,
            output=folder / "output.jsonl",
            timings=source_of(server.launch, model.name),
        )
        for output in generate(spec, FLEET, folder / "generator.log"):
            window = trial_of(
                PlannedTrial(label, output.level, 1),
                output,
                settings(levels=tuple(levels), duration_s=WINDOW_S),
                client_cpus=1,
                server_cpus=1,
                server_ended=None,
                ceiling_rps=None,
                floor_ms=floor_ms,
            )
            divided = breakdown_of([window])
            assert divided is not None
            found.append(divided)
    return start, found


def require_sum(divided: Breakdown) -> None:
    total_ms = sum(ms for _, ms in divided.parts)
    assert total_ms == pytest.approx(divided.mean_response_ms, rel=TOLERATED_SHARE)
    assert divided.adds_up
    # A rest that is everything would add up too.
    assert dict(divided.parts)["rest"] < 0.9 * divided.mean_response_ms


def test_more_users_wait_longer_and_share_batches(
    deep: Model, tmp_path: Path, floor_ms: float
) -> None:
    start, (alone, crowded) = measured("onnxruntime", deep, (1, 8), tmp_path, floor_ms)
    for divided in (alone, crowded):
        require_sum(divided)
    queue_ms = [dict(divided.parts)["queue and batching"] for divided in (alone, crowded)]
    assert queue_ms[1] > queue_ms[0]
    assert alone.rows_per_batch == 1
    assert (crowded.rows_per_batch or 0) > 1.5
    assert start.first_answer_s is not None
    assert start.first_answer_s > start.ready_s


def test_triton_tells_what_its_batcher_does(deep: Model, tmp_path: Path, floor_ms: float) -> None:
    _, (crowded,) = measured("triton", deep, (8,), tmp_path, floor_ms)
    require_sum(crowded)
    parts = dict(crowded.parts)
    assert min(parts["queue and batching"], parts["compute input"], parts["compute"]) > 0
    assert (crowded.rows_per_batch or 0) > 1.5


def test_a_server_without_batches_lets_requests_wait(
    deep: Model, tmp_path: Path, floor_ms: float
) -> None:
    _, (crowded,) = measured("fastapi", deep, (8,), tmp_path, floor_ms)
    require_sum(crowded)
    parts = dict(crowded.parts)
    # One thread computes, so seven requests may wait while an eighth is computed.
    assert parts["queue and batching"] > parts["compute"] > 0
    assert crowded.rows_per_batch == 1
    assert "compute input" not in parts
