"""What an experiment may need: functions that say why it cannot be had, empty where it can."""

from __future__ import annotations

import os
from collections.abc import Callable
from importlib.util import find_spec

from loadtest.playbook.experiment import Lab
from serving.backends.triton.locate import Source, find_launcher
from serving.backends.triton.wheel import wheel_obstacle
from serving.cuda import cuda_driver, why_no_gpu
from serving.deriving.pipeline import known_front
from serving.errors import MachineError
from serving.gpu_libraries import tensorrt_version
from serving.models.samples import samples_for
from serving.models.variants.parameters import read_record
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


def own_graph(lab: Lab) -> str:
    """Of a pipeline, the model behind its front half has it."""
    config = lab.config
    if config.front is None and config.pipeline is None:
        return ""
    asked = f": ask {lab.model.computed.name}" if config.pipeline else ""
    return f"{lab.model.name} has no graph of its own{asked}"


def pytorch(lab: Lab) -> str:
    entry = ENTRIES.get(lab.model.name)
    known = entry is not None and entry.torch_module is not None
    return "" if known else f"{lab.model.name} has no PyTorch module here, only its ONNX file"


def pictures(lab: Lab) -> str:
    known = known_front(lab.model, "jpeg")
    return own_graph(lab) or ("" if known else f"{lab.model.name} takes no pictures")


def colour(lab: Lab) -> str:
    front = known_front(lab.model, "jpeg")
    takes = front is not None and front.depth == 3
    return pictures(lab) or ("" if takes else f"{lab.model.name} takes grey pictures")


def no_variant(lab: Lab) -> str:
    """A variant is asked what its parent is asked, wherever it lies."""
    record = read_record(lab.config)
    return f"{lab.model.name} is a variant: ask {record.of}" if record else ""


def small_requests(most_bytes: int) -> Need:
    """For experiments that prepare many."""

    def missing(lab: Lab) -> str:
        inputs = samples_for(lab.model)[0].inputs
        size_bytes = sum(array.nbytes for array in inputs.values())
        told = f"a request of {lab.model.name} has {size_bytes / 1e6:.1f} MB"
        return f"{told}, too many to prepare a hundred" if size_bytes > most_bytes else ""

    return missing


def native_triton(_lab: Lab) -> str:
    """One that is installed, with the wheel's beside it."""
    try:
        source = find_launcher(os.environ).source
    except MachineError as error:
        return " ".join(str(error).split())
    if source not in (Source.GIVEN, Source.INSTALLED):
        return f"no Triton with a native ONNX Runtime backend is installed, only the {source.value}"
    obstacle = wheel_obstacle()
    return " ".join(str(obstacle).split()) if obstacle else ""
