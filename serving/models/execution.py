"""Where and how a model runs: instance groups, accelerators and runtime parameters.

The fields and parameters of ``config.pbtxt`` are read as Triton's ONNX Runtime backend reads them
(https://github.com/triton-inference-server/onnxruntime_backend, ``src/onnxruntime.cc``), with two
differences: what is unknown or cannot have an effect is refused, and a GPU is used only when
``KIND_GPU`` is written, never because the machine happens to have one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from tritonclient.grpc import model_config_pb2 as schema

from serving.errors import ModelError
from serving.models.accelerators import (
    CPU,
    CUDA,
    OPENVINO,
    TENSORRT,
    XNNPACK,
    Accelerator,
    flag,
    parse_accelerators,
    read,
)

INTRA_OP_THREADS = "intra_op_thread_count"
INTER_OP_THREADS = "inter_op_thread_count"
EXECUTION_MODE = "execution_mode"
MEMORY_ARENA = "enable_mem_arena"
MEMORY_PATTERN = "enable_mem_pattern"
_DEVICE_ALLOCATOR = "session.use_device_allocator_for_initializers"
_SHRINKAGE = "memory.enable_memory_arena_shrinkage"
_ORT_CPU_INSTANCES = 2
_GRAPH_LEVELS: Mapping[int, str] = {
    -1: "ORT_ENABLE_BASIC",
    0: "ORT_ENABLE_ALL",
    1: "ORT_ENABLE_EXTENDED",
    2: "ORT_DISABLE_ALL",
}
_CUDA_CODES: Mapping[str, tuple[str, ...]] = {
    "cudnn_conv_algo_search": ("EXHAUSTIVE", "HEURISTIC", "DEFAULT"),
    "arena_extend_strategy": ("kNextPowerOfTwo", "kSameAsRequested"),
}
"""CUDA options that may also stand among the model's parameters, as numbers."""
_CUDA_PLAIN = ("gpu_mem_limit", "do_copy_in_default_stream")
_THREAD_OPTIONS: Mapping[str, str] = {OPENVINO: "num_of_threads", XNNPACK: "intra_op_num_threads"}
"""Providers with a thread pool of their own, which would otherwise take every core."""


@dataclass(frozen=True)
class Execution:
    """How sessions of a model are made.

    Attributes:
        kind: ``cpu`` or ``gpu``.
        instances: how many sessions run side by side.
        devices: the GPU of each instance, as CUDA numbers the visible ones; empty on a CPU.
        every_gpu: the file names no GPU, which to Triton means each that the machine has.
        accelerators: execution providers, the preferred first.
        graph_level: name of ONNX Runtime's ``GraphOptimizationLevel``.
        parallel: operators of different branches run at the same time.
        arena_shrinkage: arenas shrunk after each run, such as ``cpu:0``; empty for none.
        session_entries: further configuration entries of the session.
    """

    kind: str = "cpu"
    instances: int = 1
    devices: tuple[int, ...] = ()
    every_gpu: bool = False
    accelerators: tuple[Accelerator, ...] = ()
    graph_level: str = "ORT_ENABLE_ALL"
    intra_op_threads: int = 1
    inter_op_threads: int = 1
    parallel: bool = False
    memory_arena: bool = True
    memory_pattern: bool = True
    arena_shrinkage: str = ""
    session_entries: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))

    @property
    def providers(self) -> tuple[str, ...]:
        """Execution providers in the order in which they may take operators; CPU is the last."""
        return (*(accelerator.provider for accelerator in self.accelerators), CPU)

    @property
    def tensorrt(self) -> Accelerator | None:
        """The accelerator that builds engines, if it was asked for."""
        return next((item for item in self.accelerators if item.provider == TENSORRT), None)

    def provider_options(self, instance: int = 0) -> list[tuple[str, dict[str, str]]]:
        """Providers and their options for one instance, as ONNX Runtime takes them."""
        found = []
        for accelerator in self.accelerators:
            options = dict(accelerator.options)
            if accelerator.provider in _THREAD_OPTIONS:
                options.setdefault(
                    _THREAD_OPTIONS[accelerator.provider], f"{self.intra_op_threads}"
                )
            if self.devices:
                options["device_id"] = str(self.devices[instance])
            found.append((accelerator.provider, options))
        return [*found, (CPU, {})]


def parse_execution(message: schema.ModelConfig, where: str) -> Execution:
    """What ``message`` says of execution.

    Raises:
        ModelError: it contradicts itself, or asks for what is not known.
    """
    parameters = {key: value.string_value for key, value in message.parameters.items()}
    execution = replace(
        _placed(message, where),
        graph_level=_graph_level(message.optimization.graph.level, where),
        intra_op_threads=_threads(INTRA_OP_THREADS, parameters, where),
        inter_op_threads=_threads(INTER_OP_THREADS, parameters, where),
        parallel=_flag(EXECUTION_MODE, parameters, where, default="0"),
        memory_arena=_flag(MEMORY_ARENA, parameters, where, default="1"),
        memory_pattern=_flag(MEMORY_PATTERN, parameters, where, default="1"),
    )
    execution = replace(execution, arena_shrinkage=_shrinkage(execution, parameters, where))
    if _DEVICE_ALLOCATOR in parameters:
        value = read(f"{where}: parameter", _DEVICE_ALLOCATOR, parameters[_DEVICE_ALLOCATOR], flag)
        entries = MappingProxyType({_DEVICE_ALLOCATOR: value})
        execution = replace(execution, session_entries=entries)
    if _flag("share_session_between_instances", parameters, where, default="0"):
        raise ModelError(
            f"{where} asks for share_session_between_instances",
            hint="Here instances share one where only memory would differ; take the parameter out.",
        )
    return replace(
        execution, accelerators=_accelerators(message, execution.kind, parameters, where)
    )


def _placed(message: schema.ModelConfig, where: str) -> Execution:
    """The kind, the number and the devices of the instances."""
    groups = list(message.instance_group) or [schema.ModelInstanceGroup()]
    kinds = {_kind(group, where) for group in groups}
    if len(kinds) > 1:
        raise ModelError(
            f"{where} has instances on the CPU and on a GPU",
            hint="Give all instance groups one kind; serve the other as a second model.",
        )
    (kind,) = kinds
    if kind == "cpu":
        of_triton = message.backend == "onnxruntime" or message.platform == "onnxruntime_onnx"
        default = _ORT_CPU_INSTANCES if of_triton else 1
        return Execution(instances=sum(group.count or default for group in groups))
    devices = [
        gpu for group in groups for gpu in (group.gpus or [0]) for _ in range(group.count or 1)
    ]
    every_gpu = any(not group.gpus for group in groups)
    return Execution("gpu", len(devices), tuple(devices), every_gpu)


def _kind(group: schema.ModelInstanceGroup, where: str) -> str:
    """``cpu`` or ``gpu``; a group without a kind is on the CPU."""
    name = schema.ModelInstanceGroup.Kind.Name(group.kind)
    if name == "KIND_MODEL":
        raise ModelError(
            f"{where} has an instance group of KIND_MODEL",
            hint="An ONNX model does not choose its device: write KIND_CPU or KIND_GPU.",
        )
    if group.gpus and name != "KIND_GPU":
        raise ModelError(
            f"{where} lists gpus in an instance group of {name}",
            hint="Write KIND_GPU, or take the gpus out.",
        )
    if group.count < 0 or any(gpu < 0 for gpu in group.gpus):
        raise ModelError(
            f"{where} has a negative number in an instance group", hint="Count from 0 upwards."
        )
    return "gpu" if name == "KIND_GPU" else "cpu"


def _accelerators(
    message: schema.ModelConfig, kind: str, parameters: Mapping[str, str], where: str
) -> tuple[Accelerator, ...]:
    asked = message.optimization.execution_accelerators
    cuda = _cuda_parameters(parameters, where)
    if kind == "cpu":
        if asked.gpu_execution_accelerator or cuda:
            named = [item.name for item in asked.gpu_execution_accelerator] or sorted(cuda)
            raise ModelError(
                f"{where} asks for {named[0]!r} but not for a GPU",
                hint="Write kind: KIND_GPU in its instance_group, or take it out.",
            )
        return parse_accelerators(asked.cpu_execution_accelerator, "cpu", where)
    if asked.cpu_execution_accelerator:
        raise ModelError(
            f"{where} asks for {asked.cpu_execution_accelerator[0].name!r}, which is for the CPU",
            hint="Write kind: KIND_CPU in its instance_group, or take it out.",
        )
    return _with_cuda(parse_accelerators(asked.gpu_execution_accelerator, "gpu", where), cuda)


def _with_cuda(found: Sequence[Accelerator], cuda: Mapping[str, str]) -> tuple[Accelerator, ...]:
    """CUDA takes what TensorRT leaves, as in Triton; other vendors' providers stand alone."""
    listed = [item for item in found if item.provider == CUDA]
    before = tuple(item for item in found if item.provider != CUDA)
    if not listed and any(item.provider != TENSORRT for item in before):
        return before
    options = {**cuda, **(listed[0].options if listed else {})}
    return (*before, Accelerator(CUDA, MappingProxyType(options)))


def _cuda_parameters(parameters: Mapping[str, str], where: str) -> dict[str, str]:
    found = {key: parameters[key] for key in _CUDA_PLAIN if key in parameters}
    for key, names in _CUDA_CODES.items():
        code = parameters.get(key, "0")
        if not code.isdecimal() or int(code) >= len(names):
            known = ", ".join(f"{number} for {name}" for number, name in enumerate(names))
            raise ModelError(f"{where}: parameter {key} is {code!r}", hint=f"Write {known}.")
        if key in parameters:
            found[key] = names[int(code)]
    return found


def _graph_level(level: int, where: str) -> str:
    if level not in _GRAPH_LEVELS:
        raise ModelError(
            f"{where}: optimization.graph.level is {level}",
            hint="Write -1 (basic), 0 (all), 1 (extended) or 2 (none).",
        )
    return _GRAPH_LEVELS[level]


def _shrinkage(execution: Execution, parameters: Mapping[str, str], where: str) -> str:
    """The arenas to shrink, each of which there must be: else every run would fail."""
    text = parameters.get(_SHRINKAGE, "")
    arenas = {f"gpu:{device}" for device in execution.devices}
    if execution.memory_arena:
        arenas.add("cpu:0")
    lacking = [arena for arena in text.split(";") if arena not in arenas]
    if text and lacking:
        raise ModelError(
            f"{where}: parameter {_SHRINKAGE} names {lacking[0]!r}, which has no arena here",
            hint=f"Arenas: {', '.join(sorted(arenas)) or 'none'}; separate them with ';'.",
        )
    return text


def _flag(key: str, parameters: Mapping[str, str], where: str, *, default: str) -> bool:
    return read(f"{where}: parameter", key, parameters.get(key, default), flag) == "1"


def _threads(key: str, parameters: Mapping[str, str], where: str) -> int:
    text = parameters.get(key, "1")
    if not text.isdecimal() or int(text) < 1:
        raise ModelError(
            f"{where}: parameter {key} is {text!r}",
            hint="Write a whole number of 1 or more; 0 would let the runtime use every core.",
        )
    return int(text)
