"""Instance groups, accelerators and runtime parameters: what is read, and what is refused."""

from __future__ import annotations

from pathlib import Path

import onnxruntime
import pytest

from serving.errors import ModelError
from serving.models.accelerators import (
    _TENSORRT,
    _TENSORRT_RENAMED,
    CPU,
    CUDA,
    OPENVINO,
    PRECISION_OPTIONS,
    TENSORRT,
    XNNPACK,
)
from serving.models.config import ModelConfig, load_config
from serving.models.execution import Execution
from serving.models.repository import Model, place

BASE = """\
name: "m"
backend: "onnxruntime"
input [ { name: "x" data_type: TYPE_FP32 dims: [ 4 ] } ]
output [ { name: "y" data_type: TYPE_FP32 dims: [ 4 ] } ]
"""
ON_GPU = "instance_group [ { count: 1 kind: KIND_GPU gpus: [ 0 ] } ]\n"
ON_CPU = "instance_group [ { count: 1 kind: KIND_CPU } ]\n"


def config(tmp_path: Path, text: str, base: str = BASE) -> ModelConfig:
    folder = tmp_path / "m"
    folder.mkdir(exist_ok=True)
    (folder / "config.pbtxt").write_text(base + text)
    return load_config(folder / "config.pbtxt")


def execution(tmp_path: Path, text: str, base: str = BASE) -> Execution:
    return config(tmp_path, text, base).execution


def parameter(key: str, value: str) -> str:
    return f'parameters {{ key: "{key}" value {{ string_value: "{value}" }} }}\n'


def accelerator(kind: str, name: str, **parameters: str) -> str:
    inner = " ".join(
        f'parameters {{ key: "{key}" value: "{value}" }}' for key, value in parameters.items()
    )
    return (
        f"optimization {{ execution_accelerators {{ {kind}_execution_accelerator : "
        f'[ {{ name: "{name}" {inner} }} ] }} }}\n'
    )


@pytest.mark.parametrize(
    ("groups", "kind", "instances", "devices"),
    [
        ("", "cpu", 2, ()),
        ("instance_group [ { kind: KIND_CPU } ]", "cpu", 2, ()),
        ("instance_group [ { count: 3 } ]", "cpu", 3, ()),
        (
            "instance_group [ { count: 1 kind: KIND_CPU }, { count: 2 kind: KIND_CPU } ]",
            "cpu",
            3,
            (),
        ),
        ("instance_group [ { kind: KIND_GPU } ]", "gpu", 1, (0,)),
        ("instance_group [ { count: 2 kind: KIND_GPU gpus: [ 0, 1 ] } ]", "gpu", 4, (0, 0, 1, 1)),
        (
            "instance_group [ { kind: KIND_GPU gpus: [ 1 ] }, { kind: KIND_GPU gpus: [ 0 ] } ]",
            "gpu",
            2,
            (1, 0),
        ),
    ],
)
def test_instances_and_their_devices(
    tmp_path: Path, groups: str, kind: str, instances: int, devices: tuple[int, ...]
) -> None:
    """Without a count Triton gives an ONNX model two instances on the CPU, one on each GPU."""
    found = config(tmp_path, groups)
    assert (found.accelerator, found.instances) == (kind, instances)
    assert found.execution.devices == devices


def test_threads_of_all_instances_are_told(tmp_path: Path) -> None:
    assert config(tmp_path, parameter("intra_op_thread_count", "3")).threads == 6


def test_another_backend_has_one_instance_by_default(tmp_path: Path) -> None:
    assert execution(tmp_path, "", BASE.replace("onnxruntime", "python")).instances == 1


def test_only_named_gpus_are_certain(tmp_path: Path) -> None:
    assert execution(tmp_path, "instance_group [ { kind: KIND_GPU } ]").every_gpu
    assert not execution(tmp_path, ON_GPU).every_gpu


def test_tensorrt_has_triton_s_names_and_cuda_behind_it(tmp_path: Path) -> None:
    asked = accelerator(
        "gpu",
        "tensorrt",
        precision_mode="FP16",
        max_workspace_size_bytes="1073741824",
        trt_engine_cache_enable="true",
        int8_use_native_calibration_table="0",
    )
    found = execution(tmp_path, ON_GPU + asked)
    assert found.providers == (TENSORRT, CUDA, CPU)
    assert found.provider_options() == [
        (
            TENSORRT,
            {
                "trt_fp16_enable": "1",
                "trt_max_workspace_size": "1073741824",
                "trt_engine_cache_enable": "1",
                "trt_int8_use_native_calibration_table": "0",
                "device_id": "0",
            },
        ),
        (CUDA, {"device_id": "0"}),
        (CPU, {}),
    ]


PROVIDER = Path(onnxruntime.__file__).parent / "capi/libonnxruntime_providers_tensorrt.so"


@pytest.mark.skipif(not PROVIDER.is_file(), reason="ONNX Runtime without TensorRT")
def test_the_installed_provider_knows_every_tensorrt_option() -> None:
    known = PROVIDER.read_bytes().split(b"\0")
    options = {_TENSORRT_RENAMED.get(name, name) for name in _TENSORRT} - {"precision_mode"}
    assert not {
        name for name in {*options, *PRECISION_OPTIONS.values()} if name.encode() not in known
    }


def test_full_precision_sets_no_option(tmp_path: Path) -> None:
    found = execution(tmp_path, ON_GPU + accelerator("gpu", "tensorrt", precision_mode="FP32"))
    assert found.tensorrt is not None
    assert dict(found.tensorrt.options) == {}


def test_each_instance_has_its_own_device(tmp_path: Path) -> None:
    found = execution(tmp_path, "instance_group [ { kind: KIND_GPU gpus: [ 0, 1 ] } ]")
    assert [found.provider_options(instance)[0][1]["device_id"] for instance in (0, 1)] == [
        "0",
        "1",
    ]


def test_cuda_options_among_the_parameters_are_numbers(tmp_path: Path) -> None:
    found = execution(
        tmp_path,
        ON_GPU
        + parameter("cudnn_conv_algo_search", "1")
        + parameter("gpu_mem_limit", "4294967200")
        + accelerator("gpu", "cuda", cudnn_conv_use_max_workspace="0"),
    )
    assert found.provider_options()[0] == (
        CUDA,
        {
            "cudnn_conv_algo_search": "HEURISTIC",
            "gpu_mem_limit": "4294967200",
            "cudnn_conv_use_max_workspace": "0",
            "device_id": "0",
        },
    )


def test_providers_with_a_pool_of_their_own_get_the_thread_count(tmp_path: Path) -> None:
    threads = parameter("intra_op_thread_count", "2")
    xnnpack = execution(tmp_path, ON_CPU + threads + accelerator("cpu", "xnnpack"))
    openvino = execution(
        tmp_path, ON_CPU + threads + accelerator("cpu", "openvino", num_of_threads="1")
    )
    assert xnnpack.provider_options() == [(XNNPACK, {"intra_op_num_threads": "2"}), (CPU, {})]
    assert openvino.provider_options()[0] == (OPENVINO, {"num_of_threads": "1"})


@pytest.mark.parametrize("name", ["dnnl", "DnnlExecutionProvider"])
def test_other_providers_are_named_as_onnx_runtime_names_them(tmp_path: Path, name: str) -> None:
    found = execution(tmp_path, ON_CPU + accelerator("cpu", name, use_arena="1"))
    assert found.provider_options() == [("DnnlExecutionProvider", {"use_arena": "1"}), (CPU, {})]


def test_another_vendor_s_gpu_has_no_cuda_behind_it(tmp_path: Path) -> None:
    found = execution(tmp_path, ON_GPU + accelerator("gpu", "migraphx"))
    assert found.providers == ("MIGraphXExecutionProvider", CPU)


def test_runtime_parameters(tmp_path: Path) -> None:
    found = execution(
        tmp_path,
        "optimization { graph { level: -1 } }\n"
        + parameter("inter_op_thread_count", "2")
        + parameter("execution_mode", "1")
        + parameter("enable_mem_arena", "0")
        + parameter("enable_mem_pattern", "false")
        + parameter("session.use_device_allocator_for_initializers", "1"),
    )
    assert found.graph_level == "ORT_ENABLE_BASIC"
    assert (found.inter_op_threads, found.parallel) == (2, True)
    assert (found.memory_arena, found.memory_pattern) == (False, False)
    assert dict(found.session_entries) == {"session.use_device_allocator_for_initializers": "1"}


def test_arenas_that_are_shrunk_must_be_there(tmp_path: Path) -> None:
    shrink = "memory.enable_memory_arena_shrinkage"
    assert execution(tmp_path, parameter(shrink, "cpu:0")).arena_shrinkage == "cpu:0"
    both = execution(tmp_path, ON_GPU + parameter(shrink, "cpu:0;gpu:0"))
    assert both.arena_shrinkage == "cpu:0;gpu:0"
    with pytest.raises(ModelError, match="'gpu:0', which has no arena"):
        execution(tmp_path, parameter(shrink, "gpu:0"))
    with pytest.raises(ModelError, match="Arenas: none"):
        execution(tmp_path, parameter(shrink, "cpu:0") + parameter("enable_mem_arena", "0"))


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("instance_group [ { kind: KIND_MODEL } ]", "KIND_MODEL"),
        ("instance_group [ { kind: KIND_CPU gpus: [ 0 ] } ]", "KIND_GPU, or take the gpus out"),
        ("instance_group [ { gpus: [ 0 ] } ]", "gpus in an instance group of KIND_AUTO"),
        ("instance_group [ { count: -1 kind: KIND_CPU } ]", "negative"),
        (
            "instance_group [ { kind: KIND_CPU }, { kind: KIND_GPU } ]",
            "on the CPU and on a GPU",
        ),
        (ON_GPU + accelerator("gpu", "tensort"), "'tensort'.*Known: tensorrt, cuda, "),
        (ON_CPU + accelerator("cpu", "cuda"), "'cuda'.*Known: openvino, xnnpack, "),
        (ON_GPU + accelerator("gpu", "tensorrt", precision="FP16"), "It has: .*precision_mode"),
        (ON_GPU + accelerator("gpu", "cuda", enable_cuda_graph="1"), "no parameter"),
        (ON_GPU + accelerator("gpu", "tensorrt", precision_mode="FP8"), "FP32 or FP16 or BF16"),
        (ON_GPU + accelerator("gpu", "tensorrt", trt_dla_core="one"), "a whole number"),
        (ON_GPU + accelerator("gpu", "tensorrt", trt_dla_enable="yes"), "Write 0 or 1"),
        (ON_GPU + accelerator("gpu", "tensorrt", trt_engine_cache_path=""), "Write a text"),
        (ON_CPU + accelerator("gpu", "tensorrt"), "'tensorrt' but not for a GPU"),
        (accelerator("gpu", "tensorrt"), "'tensorrt' but not for a GPU"),
        (ON_CPU + parameter("gpu_mem_limit", "1"), "'gpu_mem_limit' but not for a GPU"),
        (ON_GPU + accelerator("cpu", "openvino"), "'openvino', which is for the CPU"),
        (ON_GPU + parameter("cudnn_conv_algo_search", "3"), "0 for EXHAUSTIVE, 1 for HEURISTIC"),
        ("optimization { graph { level: 3 } }", "level is 3"),
        (parameter("execution_mode", "2"), "execution_mode is '2'"),
        (parameter("intra_op_thread_count", "0"), "whole number of 1 or more"),
        (parameter("share_session_between_instances", "true"), "share_session"),
    ],
)
def test_what_cannot_be_is_refused(tmp_path: Path, text: str, told: str) -> None:
    with pytest.raises(ModelError, match=told):
        execution(tmp_path, text)


def test_an_accelerator_stands_once(tmp_path: Path) -> None:
    twice = "optimization { execution_accelerators { gpu_execution_accelerator : "
    with pytest.raises(ModelError, match="twice"):
        execution(tmp_path, ON_GPU + twice + '[ { name: "cuda" }, { name: "cuda" } ] } }')


def test_a_placement_stays_on_its_device(tmp_path: Path) -> None:
    config(tmp_path, "instance_group [ { kind: KIND_GPU gpus: [ 1 ] } ]")
    (tmp_path / "m" / "1").mkdir()
    placed = place(Model(tmp_path, "m"), tmp_path / "placed", instances=2, intra_op_threads=1)
    assert placed.config.execution.devices == (1, 1)
