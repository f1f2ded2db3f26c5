"""Execution accelerators of ``config.pbtxt``: execution providers and their options.

Names and parameters are those of Triton's ONNX Runtime backend
(https://github.com/triton-inference-server/onnxruntime_backend) and of ONNX Runtime's execution
providers (https://onnxruntime.ai/docs/execution-providers). CUDA graphs are not among them: they
need buffers at fixed addresses, which a server's requests do not have.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from tritonclient.grpc import model_config_pb2 as schema

from serving.errors import ModelError

CPU = "CPUExecutionProvider"
CUDA = "CUDAExecutionProvider"
TENSORRT = "TensorrtExecutionProvider"
OPENVINO = "OpenVINOExecutionProvider"
XNNPACK = "XnnpackExecutionProvider"

Reader = Callable[[str], str]
"""From the text in the file to the runtime's; raises ValueError with what was expected."""


@dataclass(frozen=True)
class Accelerator:
    """One execution provider.

    Attributes:
        provider: ONNX Runtime's name of it.
        options: ONNX Runtime's names and values, without what depends on the machine.
    """

    provider: str
    options: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))


def flag(text: str) -> str:
    """``1`` or ``0``."""
    known = {"1": "1", "true": "1", "0": "0", "false": "0"}
    if text.lower() not in known:
        raise ValueError("0 or 1")
    return known[text.lower()]


def _number(text: str) -> str:
    if not text.removeprefix("-").isdecimal():
        raise ValueError("a whole number")
    return text


def _text(text: str) -> str:
    if not text:
        raise ValueError("a text")
    return text


def _one_of(*choices: str) -> Reader:
    def read(text: str) -> str:
        if text not in choices:
            raise ValueError(" or ".join(choices))
        return text

    return read


PRECISION_OPTIONS: Mapping[str, str] = {
    "FP16": "trt_fp16_enable",
    "BF16": "trt_bf16_enable",
    "INT8": "trt_int8_enable",
}
_TENSORRT_RENAMED: Mapping[str, str] = {
    "max_workspace_size_bytes": "trt_max_workspace_size",
    "int8_calibration_table_name": "trt_int8_calibration_table_name",
    "int8_use_native_calibration_table": "trt_int8_use_native_calibration_table",
}
_TENSORRT: Mapping[str, Reader] = {
    "precision_mode": _one_of("FP32", *PRECISION_OPTIONS),
    **dict.fromkeys(
        (
            "max_workspace_size_bytes",
            "trt_max_partition_iterations",
            "trt_min_subgraph_size",
            "trt_dla_core",
            "trt_builder_optimization_level",
            "trt_auxiliary_streams",
        ),
        _number,
    ),
    **dict.fromkeys(
        (
            "int8_use_native_calibration_table",
            "trt_dla_enable",
            "trt_engine_cache_enable",
            "trt_force_sequential_engine_build",
            "trt_context_memory_sharing_enable",
            "trt_layer_norm_fp32_fallback",
            "trt_timing_cache_enable",
            "trt_force_timing_cache",
            "trt_detailed_build_log",
            "trt_build_heuristics_enable",
            "trt_sparsity_enable",
        ),
        flag,
    ),
    **dict.fromkeys(
        (
            "int8_calibration_table_name",
            "trt_engine_cache_path",
            "trt_engine_cache_prefix",
            "trt_timing_cache_path",
            "trt_tactic_sources",
            "trt_extra_plugin_lib_paths",
            "trt_profile_min_shapes",
            "trt_profile_opt_shapes",
            "trt_profile_max_shapes",
        ),
        _text,
    ),
}
_CUDA: Mapping[str, Reader] = {
    "cudnn_conv_algo_search": _one_of("EXHAUSTIVE", "HEURISTIC", "DEFAULT"),
    "arena_extend_strategy": _one_of("kNextPowerOfTwo", "kSameAsRequested"),
    **dict.fromkeys(("gpu_mem_limit", "sdpa_kernel", "tunable_op_max_tuning_duration_ms"), _number),
    **dict.fromkeys(
        (
            "do_copy_in_default_stream",
            "enable_cudnn",
            "cudnn_conv_use_max_workspace",
            "cudnn_conv1d_pad_to_nc1d",
            "use_ep_level_unified_stream",
            "use_tf32",
            "prefer_nhwc",
            "fuse_conv_bias",
            "tunable_op_enable",
            "tunable_op_tuning_enable",
            "enable_skip_layer_norm_strict_mode",
        ),
        flag,
    ),
}
_OPENVINO: Mapping[str, Reader] = {
    **dict.fromkeys(
        ("device_type", "precision", "cache_dir", "load_config", "layout", "reshape_input"), _text
    ),
    **dict.fromkeys(("num_of_threads", "num_streams"), _number),
    "model_priority": _one_of("LOW", "MEDIUM", "HIGH", "DEFAULT"),
    **dict.fromkeys(("enable_qdq_optimizer", "disable_dynamic_shapes"), _one_of("True", "False")),
}
_XNNPACK: Mapping[str, Reader] = {"intra_op_num_threads": _number}

KNOWN: Mapping[str, Mapping[str, tuple[str, Mapping[str, Reader]]]] = {
    "gpu": {"tensorrt": (TENSORRT, _TENSORRT), "cuda": (CUDA, _CUDA)},
    "cpu": {"openvino": (OPENVINO, _OPENVINO), "xnnpack": (XNNPACK, _XNNPACK)},
}
"""For each kind of instance: Triton's name to ONNX Runtime's, and the parameters it takes."""


def parse_accelerators(
    asked: Iterable[schema.ModelOptimizationPolicy.ExecutionAccelerators.Accelerator],
    kind: str,
    where: str,
) -> tuple[Accelerator, ...]:
    """The accelerators of one kind, ``cpu`` or ``gpu``, in the order of the file.

    A provider that is not in ``KNOWN`` is named as ONNX Runtime names it, with or without
    ``ExecutionProvider``; its parameters are handed on as they are.

    Raises:
        ModelError: a name or a parameter is unknown or has no such value; the known are listed.
    """
    found = tuple(_accelerator(item.name, item.parameters, kind, where) for item in asked)
    names = [accelerator.provider for accelerator in found]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise ModelError(
            f"{where} names {twice[0]} twice among its {kind} accelerators",
            hint="Leave one of them.",
        )
    return found


def _accelerator(name: str, parameters: Mapping[str, str], kind: str, where: str) -> Accelerator:
    if name not in KNOWN[kind]:
        return Accelerator(_other_provider(name, kind, where), MappingProxyType(dict(parameters)))
    provider, readers = KNOWN[kind][name]
    options = {}
    for key, text in parameters.items():
        if key not in readers:
            raise ModelError(
                f"{where}: accelerator {name!r} has no parameter {key!r}",
                hint=f"It has: {', '.join(sorted(readers))}.",
            )
        value = read(f"{where}: accelerator {name!r}: parameter", key, text, readers[key])
        if key != "precision_mode":
            options[_TENSORRT_RENAMED.get(key, key)] = value
        elif value in PRECISION_OPTIONS:
            options[PRECISION_OPTIONS[value]] = "1"
    return Accelerator(provider, MappingProxyType(options))


def read(where: str, key: str, text: str, reader: Reader) -> str:
    """The value of one parameter.

    Raises:
        ModelError: it is not of the parameter's kind.
    """
    try:
        return reader(text)
    except ValueError as error:
        raise ModelError(f"{where} {key} is {text!r}", hint=f"Write {error}.") from None


def _other_provider(name: str, kind: str, where: str) -> str:
    import onnxruntime  # noqa: PLC0415  (slow to load, and few files name such a provider)

    taken = {CPU, *(provider for known in KNOWN.values() for provider, _ in known.values())}
    others: dict[str, str] = {
        provider.removesuffix("ExecutionProvider").lower(): provider
        for provider in onnxruntime.get_all_providers()
        if provider not in taken
    }
    wanted = name.removesuffix("ExecutionProvider").lower()
    if wanted not in others:
        raise ModelError(
            f"{where} asks for an unknown {kind} accelerator {name!r}",
            hint=f"Known: {', '.join((*KNOWN[kind], *sorted(others)))}.",
        )
    return others[wanted]
