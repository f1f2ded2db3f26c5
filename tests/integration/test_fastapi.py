"""What is particular to the gunicorn baseline: several workers, PyTorch eager."""

from __future__ import annotations

from pathlib import Path

import pytest

from loadtest.prepare import payloads_from
from serving.deployment import Placement, plan_launch, running
from serving.errors import ModelError, UsageError
from serving.models.repository import Model
from serving.parity import reference_for
from serving.process import family
from serving.readiness import reach_every_worker


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
