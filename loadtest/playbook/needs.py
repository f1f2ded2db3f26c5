"""What an experiment may need: functions that say why it cannot be had, empty where it can."""

from __future__ import annotations

import os
from collections.abc import Callable
from importlib.util import find_spec

from loadtest.playbook.experiment import Lab
from serving.cuda import cuda_driver, why_no_gpu
from serving.gpu_libraries import tensorrt_version
from serving.models.zoo import ENTRIES

Need = Callable[[Lab], str]


def all_of(*needs: Need) -> Need:
    """The first that is missing."""
    return lambda lab: next((reason for need in needs if (reason := need(lab))), "")


def gpu(_lab: Lab) -> str:
    reason = why_no_gpu(cuda_driver(), os.environ)
    return f"no NVIDIA GPU: {reason}" if reason else ""


def tensorrt(lab: Lab) -> str:
    return gpu(lab) or ("" if tensorrt_version() else "TensorRT's libraries are not installed")


def package(module: str, extra: str = "") -> Need:
    """``extra`` is the one of this project that brings it."""
    told = f"; `pip install 'infersweep[{extra}]'` brings it" if extra else ""
    return lambda _lab: "" if find_spec(module) else f"{module} is not installed{told}"


def cpus(count: int) -> Need:
    """Of the whole machine."""
    return lambda lab: (
        ""
        if len(lab.all_cpus) >= count
        else f"it takes {count} CPUs, and {len(lab.all_cpus)} are usable"
    )


def batched(lab: Lab) -> str:
    most = lab.config.max_batch_size
    return "" if most > 1 else f"{lab.model.name} takes one row at a time"


def pytorch(lab: Lab) -> str:
    entry = ENTRIES.get(lab.model.name)
    known = entry is not None and entry.torch_module is not None
    return "" if known else f"{lab.model.name} has no PyTorch module here, only its ONNX file"


def pictures(lab: Lab) -> str:
    entry = ENTRIES.get(lab.model.name)
    takes = entry is not None and entry.front is not None
    return "" if takes else f"{lab.model.name} takes no pictures"
