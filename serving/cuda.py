"""What CUDA sees on this machine: the driver, the devices, and what hides them.

The driver is asked in a process of its own: CUDA that was started here would be of no use to any
process forked from here later.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

_ASK_THE_DRIVER = """
import ctypes
cuda = ctypes.CDLL("libcuda.so.1")
version, devices, name = ctypes.c_int(), ctypes.c_int(), ctypes.c_char_p()
cuda.cuDriverGetVersion(ctypes.byref(version))
fault = cuda.cuInit(0) or cuda.cuDeviceGetCount(ctypes.byref(devices))
if fault:
    cuda.cuGetErrorName(fault, ctypes.byref(name))
print(version.value, devices.value, (name.value or b"-").decode())
"""
_DEVICE = re.compile(r"\d+|(GPU|MIG)-.+")
_CONTAINER_HAS_NONE = ("", "void", "none")


@dataclass(frozen=True)
class CudaDriver:
    """NVIDIA's driver.

    Attributes:
        cuda: the newest CUDA that it can run, as (major, minor); ``None`` where there is no driver.
        devices: how many GPUs CUDA sees, without those that the environment hides.
        why_none: why there are none; empty when there are some.
    """

    cuda: tuple[int, int] | None
    devices: int
    why_none: str = ""


def cuda_driver() -> CudaDriver:
    """The driver of this machine."""
    asked = subprocess.run(
        [sys.executable, "-I", "-c", _ASK_THE_DRIVER], capture_output=True, text=True, check=False
    )
    if asked.returncode != 0:
        return CudaDriver(None, 0, "there is no NVIDIA driver (libcuda.so.1)")
    version, devices, fault = asked.stdout.split()
    cuda = (int(version) // 1000, int(version) % 1000 // 10)
    why_none = "" if int(devices) else f"the driver answers {fault}"
    return CudaDriver(cuda, int(devices), why_none)


def hiding_variables(environment: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Variables that hide every GPU, each as its assignment and what it does.

    CUDA takes the devices of ``CUDA_VISIBLE_DEVICES`` up to the first that does not exist. NVIDIA's
    container runtime gives a container no device for the values below.
    """
    visible = environment.get("CUDA_VISIBLE_DEVICES")
    if visible is not None and not _DEVICE.fullmatch(visible.split(",")[0].strip()):
        yield f"CUDA_VISIBLE_DEVICES={visible!r}", "CUDA sees no GPU"
    given = environment.get("NVIDIA_VISIBLE_DEVICES")
    if given is not None and given in _CONTAINER_HAS_NONE:
        yield f"NVIDIA_VISIBLE_DEVICES={given!r}", "the container is given no GPU"


def why_no_gpu(driver: CudaDriver, environment: Mapping[str, str]) -> str:
    """Why CUDA sees no GPU, the environment first; empty when it sees one."""
    if driver.devices:
        return ""
    hiding = " and ".join(variable for variable, _ in hiding_variables(environment))
    return f"hidden by {hiding}" if hiding else driver.why_none
