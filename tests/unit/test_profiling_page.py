"""The page of a profile, the parts that fail, and the script for Nsight Systems."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest

from loadtest.folder import ResultsFolder
from loadtest.profiling import run
from loadtest.profiling.nsight import TRACED, script_of
from loadtest.profiling.page import render, write_page
from loadtest.profiling.record import (
    NAME,
    NSIGHT,
    ONNXRUNTIME,
    SERVER,
    TORCH,
    Function,
    Group,
    ModelProfile,
    Observer,
    Operator,
    RuntimeProfile,
    SeenProcess,
    ServerProfile,
)
from loadtest.profiling.run import INTERRUPTED, Profiling
from loadtest.profiling.server import SampledLoad
from loadtest.profiling.wording import sentence_of
from loadtest.rig import Rig
from loadtest.runner import Fleet
from serving.backends.base import Launch
from serving.errors import InfersweepError, MachineError
from serving.host import Gpu, GpuSurvey
from serving.models.repository import Model
from tests.sample_trials import manifest, settings

HOSTILE = "</script><script>alert(1)</script>"
STACKS = f'process 7:"python -m gunicorn";main (app.py:1);{HOSTILE} (onnxruntime/x.py:2) 60\n'
CONV = Operator(op_type="Conv", provider="CPUExecutionProvider", calls=4, total_ms=8, share=0.8)
GEMM = Operator(op_type="Gemm", provider="CPUExecutionProvider", calls=2, total_ms=2, share=0.2)
RUNTIME = RuntimeProfile(
    runs=2,
    warm_up_runs=3,
    intra_op_threads=1,
    session_ms=6.0,
    kernels_ms=5.0,
    by_type=(CONV, GEMM),
    by_node=(CONV.model_copy(update={"node": f"/layer/{HOSTILE}"}), GEMM),
    trace="onnxruntime-trace.json",
)
SERVED = ServerProfile(
    backend="fastapi",
    users=2,
    rate_hz=100,
    sampled_s=1.0,
    native=True,
    samples=130,
    waiting=30,
    errors=0,
    behind_s=0.0,
    groups=(
        Group(name="inference", samples=60, share=0.6),
        Group(name="HTTP, gRPC and the event loop", samples=39, share=0.39),
        Group(name="metrics", samples=1, share=0.01),
    ),
    functions=(Function(name=HOSTILE, group="inference", samples=60, share=0.6),),
    processes=(SeenProcess(pid=7, name="gunicorn", samples=100),),
    observer=Observer(before_rps=100, sampled_rps=75, after_rps=98, ratio=0.75),
    stacks="stacks.txt",
)


def profile(**parts: Any) -> ModelProfile:
    given = {"runtime": RUNTIME, "server": SERVED, **parts}
    return ModelProfile(
        manifest=manifest(),
        missing={TORCH: "model 'tiny' exists as ONNX only", NSIGHT: "there is no GPU"},
        complete=True,
        sentence=sentence_of(given["runtime"], None, given["server"]),
        **given,
    )


def test_the_sentence_names_the_operator_that_takes_most_and_what_the_server_does() -> None:
    assert profile().sentence == (
        "Conv takes 80% of the time of all kernels in ONNX Runtime; of fastapi's busy samples "
        "under load 60% are in inference, 39% in HTTP, gRPC and the event loop."
    )


def test_the_page_has_every_number_in_tables_and_escapes_what_it_is_told() -> None:
    page = render(profile(), STACKS)
    assert HOSTILE not in page
    for figure in ("runtime-operators", "groups", "flame"):
        assert f'id="{figure}-data"' in page
    assert "25% slower: 75.0 requests/s, 100.0 just before and 98.0 after" in page
    # Of 100 busy samples: 1.96 * 0.5 / sqrt(100).
    assert "a share is known to 9.8 points at best" in page
    assert "exists as ONNX only" in page
    assert "there is no GPU" in page
    assert '<td class="number">80.0%</td>' in page


def test_a_page_of_nothing_says_why(tmp_path: Path) -> None:
    folder = ResultsFolder(tmp_path)
    record = profile(runtime=None, server=None)
    folder.write_derived(NAME, record)
    assert folder.read_derived(NAME, ModelProfile) == record
    text = write_page(folder, record).read_text()
    assert "Nothing could be profiled." in text
    assert 'id="flame"' not in text


class Listener:
    """Listens to nothing."""

    def stage(self, text: str) -> None: ...

    def warning(self, text: str) -> None: ...

    def backend_excluded(self, label: str, reason: str) -> None: ...


@pytest.fixture
def profiling(tiny: Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Profiling:
    """Of a machine without a GPU and a model without a PyTorch module."""
    folder = ResultsFolder(tmp_path)
    folder.write_manifest(manifest())
    monkeypatch.setattr(run, "gpus", lambda: GpuSurvey((), "NVML is not installed"))
    rig = Rig(settings(backends=("fastapi",)), tiny, 2, folder, Listener(), Fleet((1,)))
    monkeypatch.setattr(rig, "open", lambda: None)
    monkeypatch.setattr(run, "profile_runtime", lambda *_: RUNTIME)
    monkeypatch.setattr(run, "profile_server", lambda *_: SERVED)
    return Profiling(rig, SampledLoad(users=2, rate_hz=100))


def raising(error: BaseException) -> Any:
    def part(*_: object) -> None:
        raise error

    return part


def test_a_part_that_fails_leaves_the_others_standing(
    profiling: Profiling, monkeypatch: pytest.MonkeyPatch
) -> None:
    fault = MachineError("the disk is full", hint="Make room.")
    monkeypatch.setattr(run, "profile_runtime", raising(fault))
    profiling.run()
    record = profiling.write()
    assert (record.runtime, record.server) == (None, SERVED)
    assert record.missing[ONNXRUNTIME] == "the disk is full. Make room."
    assert "not in the zoo" in record.missing[TORCH]
    assert "NVML is not installed" in record.missing[NSIGHT]
    assert profiling.failures == [fault]
    assert profiling.found
    assert record.sentence.startswith("Of fastapi's busy samples")


def test_an_interruption_keeps_what_is_there(
    profiling: Profiling, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run, "profile_server", raising(KeyboardInterrupt()))
    profiling.run()
    record = profiling.write()
    assert not record.complete
    assert record.runtime == RUNTIME
    assert record.missing[SERVER] == INTERRUPTED
    assert "This profile was interrupted" in render(record, "")


def test_nothing_is_found_when_every_part_fails(
    profiling: Profiling, monkeypatch: pytest.MonkeyPatch
) -> None:
    faults: list[InfersweepError] = [MachineError("one", hint="A."), MachineError("two", hint="B.")]
    monkeypatch.setattr(run, "profile_runtime", raising(faults[0]))
    monkeypatch.setattr(run, "profile_server", raising(faults[1]))
    profiling.run()
    assert not profiling.found
    assert profiling.failures == faults


def test_a_gpu_gets_a_script_for_nsight_systems(
    profiling: Profiling, monkeypatch: pytest.MonkeyPatch
) -> None:
    survey = GpuSurvey((Gpu("A GPU", 8 * 10**9, "580"),))
    launch = Launch("fastapi", "http://127.0.0.1:8000", argv=("python", "-m", "gunicorn"))
    monkeypatch.setattr(run, "gpus", lambda: survey)
    monkeypatch.setattr(profiling.rig, "plan", lambda _: launch)
    profiling.run()
    record = profiling.write()
    assert record.nsight is not None
    script = profiling.rig.folder.path / record.nsight
    assert "python -m gunicorn" in script.read_text()
    assert "sh nsight.sh" in render(record, STACKS)


def test_the_script_traces_the_very_server_and_ends_it_after_the_load(tmp_path: Path) -> None:
    """With stand-ins for nsys, taskset and curl, which a machine without a GPU may lack."""
    stand_ins = {
        "nsys": 'echo "$@" > nsys.txt\nwhile [ "$1" != sh ]; do shift; done\nexec "$@"',
        "taskset": 'echo "$2" > cpus.txt\nshift 2\nexec "$@"',
        "curl": "test -e ready.txt",
        "sleep": "exec /bin/sleep 0.02",
    }
    for name, text in stand_ins.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{text}\n")
        (tmp_path / name).chmod(0o755)
    server = 'echo "$GREETING" > env.txt; : > ready.txt; exec /bin/sleep 60'
    launch = Launch(
        "fastapi",
        "http://127.0.0.1:8000",
        argv=("sh", "-c", server),
        env={"GREETING": "it's here"},
    )
    script = script_of(launch, (0, 2), ["sh", "-c", "cp server.pid loaded.pid"])
    (tmp_path / "nsight.sh").write_text(script)
    path = {"PATH": f"{tmp_path}:/usr/bin:/bin"}
    done = subprocess.run(
        ["sh", str(tmp_path / "nsight.sh")],
        env=path,
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert f"--trace={TRACED}" in (tmp_path / "nsys.txt").read_text()
    assert (tmp_path / "env.txt").read_text() == "it's here\n"
    assert (tmp_path / "cpus.txt").read_text() == "0,2\n"
    pid = int((tmp_path / "loaded.pid").read_text())
    assert not Path(f"/proc/{pid}").exists()
