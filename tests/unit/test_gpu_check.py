"""``make gpu-check``: refused without a GPU; what it asks for, measures and demands with one."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from benchmarks.gpu_check import (
    BATCHES,
    PRECISIONS,
    TOLERANCES,
    Measurement,
    child,
    experiments,
    measure,
    row_of,
    rows_of,
    variant,
)
from loadtest.playbook.record import ArmRecord, Effect, ExperimentRecord, Verdict
from serving.models.accelerators import CPU, CUDA, TENSORRT
from serving.models.repository import Model
from serving.models.samples import samples_for
from serving.session import open_session

ON_THE_CPU = Measurement(
    provider=CPU,
    answers=[[1.0, 10.0], [10.0, 1.0]],
    first_s=0.02,
    median_s=0.01,
    rows_per_s={"1": 100.0, "8": 200.0},
)
ON_TENSORRT = replace(
    ON_THE_CPU,
    provider=TENSORRT,
    rows_per_s={"1": 1000.0, "8": 4000.0},
    nodes={TENSORRT: 9, CUDA: 1},
    engine_s=[30.0, 1.5],
    engine_outcomes=["built", "reused"],
    memory_bytes=500_000_000,
)


def test_without_a_gpu_it_refuses_in_one_line() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.gpu_check"],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "CUDA_VISIBLE_DEVICES": "-1"},
    )
    assert (done.returncode, done.stdout) == (3, "")
    (line,) = done.stderr.splitlines()
    assert "CUDA sees none: hidden by CUDA_VISIBLE_DEVICES='-1'" in line


def test_each_variant_asks_for_its_provider(tiny: Model, tmp_path: Path) -> None:
    made = {name: variant(tiny, name, tmp_path).config.execution for name in PRECISIONS}
    assert [execution.providers for execution in made.values()] == [
        (CPU,),
        (CUDA, CPU),
        (TENSORRT, CUDA, CPU),
        (TENSORRT, CUDA, CPU),
    ]
    options = [made[name].provider_options()[0][1] for name in ("tensorrt-fp32", "tensorrt-fp16")]
    assert [option.get("trt_fp16_enable") for option in options] == [None, "1"]
    assert {option["trt_engine_cache_path"] for option in options} == {str(tmp_path / "engines")}


def test_a_measurement_on_the_cpu(tiny: Model, tmp_path: Path) -> None:
    found = measure(variant(tiny, "cpu", tmp_path), threads=1, seconds=0.01)
    right = [open_session(tiny).run(sample.inputs)["y"].ravel() for sample in samples_for(tiny)]
    np.testing.assert_allclose(found.answers, right, atol=1e-5)
    assert (found.provider, found.engine_s, found.memory_bytes) == (CPU, [], 0)
    assert list(found.rows_per_s) == [str(batch) for batch in BATCHES]
    assert min(found.first_s, found.median_s, *found.rows_per_s.values()) > 0


def unmet(found: Measurement) -> list[str]:
    return [
        row.name.partition(": ")[2]
        for row in rows_of("tensorrt-fp16", found, ON_THE_CPU)
        if not row.met
    ]


def test_a_good_provider_meets_every_row() -> None:
    assert unmet(ON_TENSORRT) == []


@pytest.mark.parametrize(
    ("change", "missed"),
    [
        ({"nodes": {CUDA: 10}}, f"operators on {TENSORRT}"),
        ({"engine_s": [30.0, 29.0]}, "second start / engine build"),
        ({"engine_outcomes": ["built", "built"]}, "second start / engine build"),
        ({"rows_per_s": {"1": 100.0, "8": 150.0}}, "batch 8 / the CPU's"),
        (
            {"answers": [[1.0, 10.0 * (1 + 1.5 * TOLERANCES["tensorrt-fp16"])], [10.0, 1.0]]},
            "largest difference / largest logit",
        ),
    ],
)
def test_a_bad_one_misses_the_row_that_says_so(change: dict[str, object], missed: str) -> None:
    assert unmet(replace(ON_TENSORRT, **change)) == [missed]  # type: ignore[arg-type]


def test_another_class_than_the_cpu_s_is_missed() -> None:
    swapped = replace(ON_TENSORRT, answers=[[10.0, 1.0], [10.0, 1.0]])
    assert "same class as on the CPU" in unmet(swapped)


MEASURED = ExperimentRecord(
    name="cuda-provider",
    title="",
    claim="",
    usual=(10.0, 30.0),
    page="gpu.md",
    measure="throughput",
    unit="inferences/s",
    model="image_classifier",
    started="",
    took_s=1.0,
    starts=1,
    baseline="cpu",
    judged="cuda",
    arms=(ArmRecord(name="cpu", what=""), ArmRecord(name="cuda", what="")),
    effects=(Effect(arm="cuda", ratio=12.0, low=11.0, high=13.0),),
    verdict="holds",
    sentence="Holds: 12.00 times the baseline.",
)


@pytest.mark.parametrize(
    ("verdict", "met"), [("holds", True), ("opposite", True), ("breaks accuracy", False)]
)
def test_an_experiment_may_find_anything_but_wrong_answers(verdict: Verdict, met: bool) -> None:
    row = row_of(MEASURED.model_copy(update={"verdict": verdict}))
    assert (row.name, row.value, row.met) == ("playbook cuda-provider: cuda / cpu", 12.0, met)


def test_what_a_machine_has_not_is_no_fault_but_what_broke_is() -> None:
    nothing = {"arms": (), "effects": (), "verdict": "cannot be measured here", "missing": "why"}
    lacking = MEASURED.model_copy(update=nothing)
    assert (row_of(lacking).met, row_of(lacking).note) == (None, "why")
    assert row_of(lacking.model_copy(update={"failed": True})).met is False


def test_the_experiments_are_those_that_refuse_without_a_gpu(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "-1")
    assert "cuda-provider" in experiments()
    for name in experiments():
        assert child("experiment", name, str(tmp_path)) == 0
        record = ExperimentRecord.model_validate_json(capsys.readouterr().out)
        assert row_of(record).met is None
        assert "no NVIDIA GPU" in record.missing
