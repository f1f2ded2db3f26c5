"""Sessions as experiments open them: providers, rows, fixed axes, and what the processor can do."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from benchmarks.gpu_check import variant
from loadtest.playbook.engines import Change, on_cpu, on_cuda, on_tensorrt, rows_of
from loadtest.playbook.experiments.fixed_shapes import fix
from loadtest.playbook.precision import instructions
from serving.models.execution import Execution
from serving.models.repository import Model


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("cpu", on_cpu),
        ("cuda", on_cuda),
        ("tensorrt-fp32", partial(on_tensorrt, precision="FP32")),
        ("tensorrt-fp16", partial(on_tensorrt, precision="FP16")),
    ],
)
def test_an_arm_runs_on_what_the_same_configuration_would_ask_for(
    name: str, change: Change, tiny: Model, tmp_path: Path
) -> None:
    asked = variant(tiny, name, tmp_path).config.execution
    made = change(tiny.config.execution)
    kept = [
        (provider, {key: value for key, value in options.items() if "cache" not in key})
        for provider, options in asked.provider_options()
    ]
    assert (made.kind, made.devices) == (asked.kind, asked.devices)
    assert made.provider_options() == kept


def test_a_model_of_a_gpu_can_be_asked_on_the_cpu() -> None:
    placed = on_cuda(Execution(intra_op_threads=3))
    assert on_cpu(placed) == Execution(intra_op_threads=3)


def test_rows_joined_are_the_samples_in_turn(tiny: Model) -> None:
    alone = rows_of(tiny)
    joined = rows_of(tiny, 3)
    assert len(joined) == len(alone)
    last = joined[-1]
    for name, array in last.items():
        wanted = [alone[-1][name], alone[0][name], alone[1][name]]
        np.testing.assert_array_equal(array, np.concatenate(wanted))


def graph_of(*shape: str | int | None) -> onnx.GraphProto:
    given = helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)
    answered = helper.make_tensor_value_info("y", TensorProto.FLOAT, shape)
    return helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "g", [given], [answered])


def shape_of(value: onnx.ValueInfoProto) -> list[str | int]:
    return [axis.dim_param or axis.dim_value for axis in value.type.tensor_type.shape.dim]


def test_a_free_axis_gets_the_one_length_it_has() -> None:
    graph = graph_of("batch", 3, "width")
    rows = [{"x": np.zeros((1, 3, width), np.float32)} for width in (8, 8)]
    assert fix(graph, rows) == {"batch": 1, "width": 8}
    assert [shape_of(value) for value in (graph.input[0], graph.output[0])] == [[1, 3, 8]] * 2


def test_an_axis_of_several_lengths_stays_free() -> None:
    graph = graph_of("batch", "width")
    rows = [{"x": np.zeros((1, width), np.float32)} for width in (8, 9)]
    assert fix(graph, rows) == {"batch": 1}
    assert shape_of(graph.input[0]) == [1, "width"]


def test_an_axis_without_a_name_is_named_by_its_place() -> None:
    graph = graph_of("batch", None)
    assert fix(graph, [{"x": np.zeros((1, 8), np.float32)}]) == {"batch": 1, "x[1]": 8}
    assert shape_of(graph.input[0]) == [1, 8]


def test_a_graph_without_free_axes_has_nothing_to_fix() -> None:
    assert fix(graph_of(1, 8), [{"x": np.zeros((1, 8), np.float32)}]) == {}


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (
            "processor\t: 0\nflags\t\t: fpu avx2 avx512f avx512_vnni\n",
            "AVX2, AVX-512, AVX-512 VNNI",
        ),
        ("Features\t: fp asimd asimddp\n", "dot product"),
        ("flags : fpu sse2\n\nflags : avx2\n", ""),
        ("", ""),
    ],
)
def test_the_instructions_are_those_of_the_first_processor(text: str, found: str) -> None:
    assert instructions(text) == found
