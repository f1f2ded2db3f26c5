"""The providers and GPUs that were asked for, or an error that says what is missing."""

from __future__ import annotations

import onnxruntime
import pytest

from serving import providers
from serving.cuda import CudaDriver
from serving.errors import MachineError
from serving.models.accelerators import CPU, CUDA, TENSORRT, XNNPACK, Accelerator
from serving.models.execution import Execution
from serving.providers import (
    PROVIDERS,
    loadable_providers,
    require_execution,
    require_provider,
    require_used,
)

ON_GPU = Execution("gpu", 1, (0,), accelerators=(Accelerator(TENSORRT), Accelerator(CUDA)))


@pytest.fixture
def offered(monkeypatch: pytest.MonkeyPatch) -> None:
    """A package with the GPU providers, as on x86_64."""
    known = [TENSORRT, CUDA, CPU]
    monkeypatch.setattr(onnxruntime, "get_available_providers", lambda: known)


def with_driver(monkeypatch: pytest.MonkeyPatch, driver: CudaDriver) -> None:
    monkeypatch.setattr(providers, "cuda_driver", lambda: driver)


def test_an_unknown_provider_is_an_error_that_lists_the_known() -> None:
    with pytest.raises(MachineError, match=f"no CUDAExecutonProvider.*{CPU}"):
        require_provider("CUDAExecutonProvider")


def test_the_cpu_provider_loads_everywhere() -> None:
    assert loadable_providers()[PROVIDERS["cpu"]] == ""


def test_a_provider_that_the_package_lacks_is_told_before_loading(offered: None) -> None:
    with pytest.raises(MachineError, match=f"no {XNNPACK}"):
        require_execution(Execution(accelerators=(Accelerator(XNNPACK),)))


def test_the_cpu_needs_no_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(providers, "cuda_driver", lambda: pytest.fail("the driver was asked"))
    require_execution(Execution())


def test_no_gpu_is_told_with_its_reason(offered: None, monkeypatch: pytest.MonkeyPatch) -> None:
    with_driver(monkeypatch, CudaDriver(None, 0, "there is no NVIDIA driver"))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.delenv("NVIDIA_VISIBLE_DEVICES", raising=False)
    with pytest.raises(MachineError, match="CUDA sees no GPU: there is no NVIDIA driver"):
        require_execution(ON_GPU)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "-1")
    with pytest.raises(MachineError, match="hidden by CUDA_VISIBLE_DEVICES='-1'"):
        require_execution(ON_GPU)


def test_a_gpu_past_the_last_is_told(offered: None, monkeypatch: pytest.MonkeyPatch) -> None:
    with_driver(monkeypatch, CudaDriver((13, 0), 1))
    require_execution(ON_GPU)
    with pytest.raises(MachineError, match="GPU 1 is asked for and CUDA sees 1"):
        require_execution(Execution("gpu", 1, (1,), accelerators=(Accelerator(CUDA),)))


def test_of_several_gpus_one_must_be_named(offered: None, monkeypatch: pytest.MonkeyPatch) -> None:
    any_gpu = Execution("gpu", 1, (0,), every_gpu=True, accelerators=(Accelerator(CUDA),))
    with_driver(monkeypatch, CudaDriver((13, 0), 1))
    require_execution(any_gpu)
    with_driver(monkeypatch, CudaDriver((13, 0), 2))
    with pytest.raises(MachineError, match=r"names no GPU.*gpus: \[ 0 \]"):
        require_execution(any_gpu)


@pytest.mark.parametrize(
    "found",
    [[CPU], [CUDA, CPU], [CUDA, TENSORRT, CPU], [TENSORRT, CPU], [TENSORRT, CUDA]],
)
def test_every_provider_must_be_there_in_order(found: list[str]) -> None:
    asked = [TENSORRT, CUDA, CPU]
    require_used("m", asked, asked)
    with pytest.raises(MachineError, match=f"asked for {', '.join(asked)} and got"):
        require_used("m", asked, found)


def test_the_missing_library_is_named_with_the_way_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(providers, "missing", lambda _: ("libcudnn.so.9",))
    with pytest.raises(MachineError, match=r"libcudnn\.so\.9 missing\. Run pip install"):
        require_used("m", [CUDA, CPU], [CPU])
