"""Execution providers: which the installed ONNX Runtime lists, and which really load here.

Run as ``python -m serving.providers NAME`` to try one in a process of its own.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Mapping

import onnxruntime

from serving.errors import MachineError

PROVIDERS: Mapping[str, str] = {"cpu": "CPUExecutionProvider", "gpu": "CUDAExecutionProvider"}
_MISSING_LIBRARY = re.compile(r"(\S+\.so\S*): cannot open shared object file")


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
    missing = _MISSING_LIBRARY.search(tried.stderr)
    return f"{missing[1]} is missing" if missing else "its library does not load"


def _try(provider: str) -> bool:
    from onnx import TensorProto, helper  # noqa: PLC0415  (only a trial needs it)

    tensors = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1]) for name in "xy"]
    node = helper.make_node("Identity", ["x"], ["y"])
    graph = helper.make_graph([node], "identity", tensors[:1], tensors[1:])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=[provider])
    found: list[str] = session.get_providers()
    return found[0] == provider


if __name__ == "__main__":
    sys.exit(0 if _try(sys.argv[1]) else 1)
