"""What is particular to the gunicorn baseline: several workers, PyTorch eager, its one limit."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest
import requests

from loadtest.prepare import payloads_from
from serving.deployment import Placement, plan_launch, running
from serving.errors import ModelError, UsageError
from serving.models.repository import Model
from serving.parity import reference_for
from serving.process import RunningProcess, family
from serving.readiness import reach_every_worker, wait_ready


def test_warm_up_reaches_each_of_several_workers(tiny: Model, tmp_path: Path) -> None:
    placement = Placement(cpus=(0, 1), usable_cpus=2)
    payload = payloads_from(tiny, reference_for(tiny))[0]
    with running("fastapi", tiny, placement, repository=tmp_path / "r", logs=tmp_path) as server:
        assert server.process is not None
        assert server.launch.worker_count == 2
        assert len(family(server.process.pid)) >= 3
        sent = reach_every_worker(
            server.url, "tiny", payload.body, payload.headers, count=2, deadline_s=30
        )
        assert sent >= 2


def test_more_threads_than_cpus_is_a_warning(tiny: Model, tmp_path: Path) -> None:
    crowded = Placement(cpus=(0,), usable_cpus=2, instances=2, intra_op_threads=2)
    launch, _ = plan_launch(
        "fastapi", tiny, crowded, repository=tmp_path / "r", work_folder=tmp_path
    )
    assert launch.warnings == ("4 inference threads (instances x intra-op) on 1 usable CPUs",)


def test_pytorch_is_refused_for_a_model_that_is_onnx_only(tiny: Model, tmp_path: Path) -> None:
    placement = Placement(cpus=(0,), usable_cpus=1)
    for label, kind in (("fastapi:torch", ModelError), ("fastapi:jax", UsageError)):
        with pytest.raises(kind):
            plan_launch(label, tiny, placement, repository=tmp_path / "r", work_folder=tmp_path)


def test_a_body_that_unpacks_beyond_the_limit_is_refused(tiny: Model, tmp_path: Path) -> None:
    launch, _ = plan_launch(
        "fastapi",
        tiny,
        Placement(cpus=(0,), usable_cpus=1),
        repository=tmp_path / "r",
        work_folder=tmp_path,
    )
    x = {"name": "x", "datatype": "FP32", "shape": [1, 64], "data": [0] * 64}
    body = json.dumps({"inputs": [x]}).encode()
    limit = {"INFERSWEEP_FASTAPI_DECOMPRESSED_LIMIT_BYTES": str(len(body))}
    with RunningProcess(launch.argv, env={**launch.env, **limit}, log=tmp_path / "log") as process:
        wait_ready(launch.url, "tiny", deadline_s=60, process=process, label="fastapi")

        def status(content: bytes) -> int:
            return requests.post(
                f"{launch.url}/v2/models/tiny/infer",
                gzip.compress(content),
                headers={"Content-Encoding": "gzip"},
                timeout=20,
            ).status_code

        assert status(body) == 200
        assert status(body + b" ") == 413
        assert status(bytes(50_000_000)) == 413
        assert status(body) == 200
