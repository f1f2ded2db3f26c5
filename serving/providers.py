"""Execution providers: which the installed ONNX Runtime lists, and which really load here.

Run as ``python -m serving.providers NAME`` to try one in a process of its own.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence

import onnxruntime

from serving.cuda import cuda_driver, why_no_gpu
from serving.errors import MachineError
from serving.gpu_libraries import missing, preload, way_out
from serving.models.accelerators import CPU, CUDA, TENSORRT
from serving.models.execution import Execution

PROVIDERS: Mapping[str, str] = {"cpu": CPU, "gpu": CUDA}
_DOCTOR = "`infersweep doctor` shows what is here and what is missing."


def runtime_version() -> str:
    """ONNX Runtime's own version, whichever of its packages is installed."""
    version: str = onnxruntime.__version__
    return version


def require_provider(name: str) -> str:
    """``name`` itself.

    Raises:
        MachineError: the installed ONNX Runtime does not have it.
    """
    known = onnxruntime.get_available_providers()
    if name not in known:
        raise MachineError(
            f"ONNX Runtime {onnxruntime.__version__} here has no {name}",
            hint=f"It has: {', '.join(known)}.",
        )
    return name


def require_execution(execution: Execution) -> None:
    """Check before anything is loaded that every provider and every GPU asked for is there.

    Raises:
        MachineError: a provider is not in the package, or a GPU is not seen.
    """
    for name in execution.providers:
        require_provider(name)
    if not {CUDA, TENSORRT} & set(execution.providers):
        return
    driver = cuda_driver()
    why_none = why_no_gpu(driver, os.environ)
    if why_none:
        raise MachineError(
            f"KIND_GPU is asked for and CUDA sees no GPU: {why_none}",
            hint=f"Write KIND_CPU, or mend that. {_DOCTOR}",
        )
    if max(execution.devices) >= driver.devices:
        raise MachineError(
            f"GPU {max(execution.devices)} is asked for and CUDA sees {driver.devices}",
            hint="Number them from 0 in the instance_group's gpus.",
        )
    if execution.every_gpu and driver.devices > 1:
        raise MachineError(
            f"KIND_GPU names no GPU and CUDA sees {driver.devices}",
            hint="Write gpus: [ 0 ] in the instance_group, or list several.",
        )


def require_used(model: str, asked: Sequence[str], found: Sequence[str]) -> None:
    """Check after the session was made that it has what was asked for, in that order.

    Raises:
        MachineError: ONNX Runtime left a provider out, which it does without an error.
    """
    if list(asked) == list(found):
        return
    lost = next((name for name in asked if name not in found), asked[0])
    absent = missing(lost)
    reason = f": {', '.join(absent)} missing" if absent else ""
    raise MachineError(
        f"model {model!r} asked for {', '.join(asked)} and got {', '.join(found)}{reason}",
        hint=way_out(absent) or _DOCTOR,
    )


def loadable_providers() -> dict[str, str]:
    """Each provider the package lists, and why it does not load (empty when it does).

    Each is tried in a process of its own: a failing one prints much, and may not be tried twice.
    """
    return {name: _fault(name) for name in onnxruntime.get_available_providers()}


def _fault(provider: str) -> str:
    tried = subprocess.run(
        [sys.executable, "-m", "serving.providers", provider],
        capture_output=True,
        text=True,
        check=False,
    )
    if tried.returncode == 0:
        return ""
    absent = missing(provider)
    return f"missing: {', '.join(absent)}" if absent else "its library does not load"


def _try(provider: str) -> bool:
    from onnx import TensorProto, helper  # noqa: PLC0415  (only a trial needs it)

    tensors = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1]) for name in "xy"]
    node = helper.make_node("Identity", ["x"], ["y"])
    graph = helper.make_graph([node], "identity", tensors[:1], tensors[1:])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    if provider in (CUDA, TENSORRT):
        preload()
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=[provider])
    found: list[str] = session.get_providers()
    return found[0] == provider


if __name__ == "__main__":
    sys.exit(0 if _try(sys.argv[1]) else 1)
