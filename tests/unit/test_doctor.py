"""What ``infersweep doctor`` says of a GPU host, and of an environment that hides its GPU."""

from __future__ import annotations

from pathlib import Path

import pytest

from loadtest.cli import doctor
from loadtest.cli.doctor import Finding
from serving.cuda import CudaDriver
from serving.gpu_libraries import Library, locate
from serving.host import Gpu, GpuSurvey
from serving.models.accelerators import CUDA, TENSORRT


@pytest.fixture
def gpu_host(monkeypatch: pytest.MonkeyPatch) -> dict[str, tuple[Library, ...]]:
    """A machine with a GPU, whose libraries a test puts into the dictionary."""
    found: dict[str, tuple[Library, ...]] = {CUDA: (), TENSORRT: ()}
    gpu = Gpu("NVIDIA H200", 150_000_000_000, "580.65.06")
    monkeypatch.setattr(doctor, "gpus", lambda: GpuSurvey((gpu,)))
    monkeypatch.setattr(doctor, "cuda_driver", lambda: CudaDriver((13, 0), 1))
    monkeypatch.setattr(doctor, "libraries", lambda provider: found[provider])
    monkeypatch.setattr(doctor, "loadable_providers", dict)
    monkeypatch.setattr(doctor.onnxruntime, "cuda_version", "13.0")
    for variable in ("CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES"):
        monkeypatch.delenv(variable, raising=False)
    return found


def findings() -> dict[str, Finding]:
    return {finding.what: finding for finding in doctor.findings()}


def test_a_whole_installation_has_no_cost(
    gpu_host: dict[str, tuple[Library, ...]], tmp_path: Path
) -> None:
    file = tmp_path / "nvidia" / "cudnn" / "lib" / "libcudnn.so.9"
    file.parent.mkdir(parents=True)
    file.touch()
    gpu_host[CUDA] = locate("", ("libcudnn.so.9",), tmp_path, ())
    told = findings()
    assert told["GPUs"] == Finding("GPUs", "NVIDIA H200 (150 GB); driver 580.65.06")
    assert told["NVIDIA driver"].found.startswith("runs CUDA up to 13.0, sees 1 GPU(s)")
    assert told["NVIDIA driver"].cost == ""
    assert told["libcudnn.so.9 for CUDA"] == Finding("libcudnn.so.9 for CUDA", str(file))
    assert "environment" not in told


def test_what_is_missing_has_its_cost_and_its_way_out(
    gpu_host: dict[str, tuple[Library, ...]],
) -> None:
    gpu_host[TENSORRT] = (Library("libnvinfer.so.10", None, (Path("/usr/lib/libnvinfer.so.8"),)),)
    told = findings()["libnvinfer.so.10 for Tensorrt"]
    assert told.found == "missing; in other versions: /usr/lib/libnvinfer.so.8"
    assert told.cost.startswith(f"no {TENSORRT}. Run pip install")


@pytest.mark.parametrize(
    ("driver", "needed", "cost"),
    [
        (CudaDriver((12, 8), 1), "13.0", "needs CUDA 13.0: update the driver"),
        (CudaDriver((13, 0), 1), "13.2", ""),
        (CudaDriver((13, 0), 0, "the driver answers X"), "13.0", "the driver answers X"),
        (CudaDriver((13, 0), 1), "", "built without CUDA"),
    ],
)
def test_the_driver_against_what_onnx_runtime_needs(
    gpu_host: dict[str, tuple[Library, ...]],
    monkeypatch: pytest.MonkeyPatch,
    driver: CudaDriver,
    needed: str,
    cost: str,
) -> None:
    monkeypatch.setattr(doctor, "cuda_driver", lambda: driver)
    monkeypatch.setattr(doctor.onnxruntime, "cuda_version", needed)
    told = findings()["NVIDIA driver"].cost
    assert told.endswith(cost)
    assert bool(told) == bool(cost)


def test_a_variable_that_hides_devices_is_told_on_any_host(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "loadable_providers", dict)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    told = findings()["environment"]
    assert told == Finding("environment", "CUDA_VISIBLE_DEVICES=''", "CUDA sees no GPU: unset it")


def test_a_host_without_a_driver_has_no_rows_of_its_libraries(
    gpu_host: dict[str, tuple[Library, ...]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doctor, "cuda_driver", lambda: CudaDriver(None, 0, "no driver"))
    gpu_host[CUDA] = (Library("libcudnn.so.9", None),)
    assert not {"NVIDIA driver", "libcudnn.so.9 for CUDA"} & findings().keys()
