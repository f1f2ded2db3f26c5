"""What hides a GPU, and what is told where there is none."""

from __future__ import annotations

import pytest

from serving.cuda import CudaDriver, cuda_driver, hiding_variables, why_no_gpu


@pytest.mark.parametrize(
    ("environment", "hiding"),
    [
        ({}, []),
        ({"CUDA_VISIBLE_DEVICES": ""}, ["CUDA_VISIBLE_DEVICES=''"]),
        ({"CUDA_VISIBLE_DEVICES": "-1"}, ["CUDA_VISIBLE_DEVICES='-1'"]),
        ({"CUDA_VISIBLE_DEVICES": "none"}, ["CUDA_VISIBLE_DEVICES='none'"]),
        ({"CUDA_VISIBLE_DEVICES": "-1,0"}, ["CUDA_VISIBLE_DEVICES='-1,0'"]),
        ({"CUDA_VISIBLE_DEVICES": "0,-1"}, []),
        ({"CUDA_VISIBLE_DEVICES": "1"}, []),
        ({"CUDA_VISIBLE_DEVICES": "GPU-8932f937-d72c"}, []),
        ({"CUDA_VISIBLE_DEVICES": "MIG-8932f937-d72c"}, []),
        ({"NVIDIA_VISIBLE_DEVICES": "all"}, []),
        ({"NVIDIA_VISIBLE_DEVICES": "none"}, ["NVIDIA_VISIBLE_DEVICES='none'"]),
        ({"NVIDIA_VISIBLE_DEVICES": "void"}, ["NVIDIA_VISIBLE_DEVICES='void'"]),
        (
            {"CUDA_VISIBLE_DEVICES": "-1", "NVIDIA_VISIBLE_DEVICES": ""},
            ["CUDA_VISIBLE_DEVICES='-1'", "NVIDIA_VISIBLE_DEVICES=''"],
        ),
    ],
)
def test_variables_that_hide_every_gpu(environment: dict[str, str], hiding: list[str]) -> None:
    assert [variable for variable, _ in hiding_variables(environment)] == hiding


def test_a_hidden_gpu_is_none_and_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    """With and without a GPU in the machine."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "-1")
    driver = cuda_driver()
    assert (driver.devices, bool(driver.why_none)) == (0, True)


def test_the_environment_is_blamed_before_the_driver() -> None:
    driver = CudaDriver((13, 0), 0, "the driver answers CUDA_ERROR_NO_DEVICE")
    assert why_no_gpu(driver, {"CUDA_VISIBLE_DEVICES": ""}) == "hidden by CUDA_VISIBLE_DEVICES=''"
    assert why_no_gpu(driver, {}) == "the driver answers CUDA_ERROR_NO_DEVICE"
    assert why_no_gpu(CudaDriver((13, 0), 1), {}) == ""
