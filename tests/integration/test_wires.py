"""Every way of speaking to a server: JSON, gRPC, shared memory, batches, headers."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from tritonclient.grpc import service_pb2

from loadtest.payload import write_payloads
from loadtest.prepare import payloads_from
from loadtest.results import BackendSummary
from loadtest.runner import Fleet, generate
from loadtest.scenarios import ClosedLoop
from loadtest.trial import TrialSpec
from loadtest.validity import judge
from serving.models.repository import Model
from serving.parity import reference_for
from tests.integration.test_sweep import Listener, short, sweep

ROOT = Path(__file__).parents[2]


def measured(tiny: Model, tmp_path: Path, backend: str, **changes: object) -> BackendSummary:
    listener = Listener()
    asked = short(backends=(backend,), **changes)
    (found,) = sweep(tiny, tmp_path / "out", listener, asked).backends
    return found


@pytest.mark.parametrize(
    ("backend", "changes"),
    [
        ("onnxruntime", {"encoding": "json"}),
        ("fastapi", {"batch_size": 4}),
        ("onnxruntime", {"engine": "python"}),
        ("onnxruntime", {"encoding": "grpc", "engine": "python"}),
        ("onnxruntime", {"shared_memory": True}),
        ("triton", {"encoding": "grpc", "engine": "python"}),
        ("triton", {"shared_memory": True}),
        ("triton", {"encoding": "json"}),
    ],
    ids=lambda v: v if isinstance(v, str) else "-".join(map(str, v.values())),
)
def test_answers_stay_right(
    tiny: Model, tmp_path: Path, backend: str, changes: dict[str, object]
) -> None:
    found = measured(tiny, tmp_path, backend, **changes)
    assert found.excluded is None
    (point,) = found.points
    assert point.outcomes["ok"] == sum(point.outcomes.values()) > 100
    rows = int(changes.get("batch_size", 1))  # type: ignore[call-overload]
    assert point.inferences_per_s == pytest.approx(point.requests_per_s * rows)


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"shared_memory": True}, "takes no system shared memory"),
        ({"encoding": "grpc", "engine": "python"}, "does not speak gRPC"),
    ],
)
def test_a_server_without_it_is_left_out_with_the_reason(
    tiny: Model, tmp_path: Path, changes: dict[str, object], told: str
) -> None:
    found = measured(tiny, tmp_path, "fastapi", **changes)
    assert found.excluded is not None
    assert told in found.excluded


def grpc_reply(answer: np.ndarray) -> bytes:
    message = service_pb2.ModelInferResponse(model_name="tiny")
    message.outputs.add(name="y", datatype="FP32", shape=answer.shape)
    message.raw_output_contents.append(answer.tobytes())
    return bytes(message.SerializeToString())


def test_ten_users_of_grpc_do_not_wait_for_one_another(tiny: Model, tmp_path: Path) -> None:
    """An endpoint of 200 ms under 10 users: 49/s; a client that blocks gets 4.9/s."""
    reference = reference_for(tiny)
    write_payloads(tmp_path / "payloads", payloads_from(tiny, reference, encoding="grpc")[:1])
    (tmp_path / "reply").write_bytes(grpc_reply(reference.answers[0]["y"]))
    server = subprocess.Popen(
        [sys.executable, "-m", "tests.slow_grpc_server", str(tmp_path / "reply"), "0.2"],
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
    )
    assert server.stdout is not None
    try:
        spec = TrialSpec(
            url=f"grpc://127.0.0.1:{server.stdout.readline().strip()}",
            model="tiny",
            payloads=tmp_path / "payloads",
            engine="python",
            levels=(10,),
            duration_s=4.0,
            timeout_s=5.0,
            seed=1,
            values_every=20,
            server_pid=None,
            output=tmp_path / "output.jsonl",
        )
        (output,) = generate(spec, Fleet(cpus=(1,)), tmp_path / "generator.log")
    finally:
        server.kill()
        server.wait()
    assert output.outcomes["ok"] == output.planned
    assert output.planned / output.window_s == pytest.approx(49, rel=0.1)
    assert output.mean_in_flight == pytest.approx(10, rel=0.05)
    found = judge(output, ClosedLoop(10), client_cpus=1, server_ended=None, ceiling_rps=None)
    assert not [reason for reason in found.reasons if "in flight" in reason]
