"""Operations and bytes of one inference, against counts by hand and PyTorch's own counter."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from onnx import helper, numpy_helper
from torch.utils.flop_counter import FlopCounterMode

from serving.arithmetic import Arithmetic, count, measure
from serving.importing import GivenLengths, OnnxFile, Request, TorchScriptFile, Wanted, add
from serving.models.repository import Model
from serving.models.samples import samples_for
from tests.odd_models import edited


def fill(model: onnx.ModelProto) -> None:
    """Give every tensor that is declared between ``<`` and ``>`` a value: ones."""
    for value in model.graph.value_info:
        kind = value.type.tensor_type
        dtype = helper.tensor_dtype_to_np_dtype(kind.elem_type)
        ones = np.ones([axis.dim_value for axis in kind.shape.dim], dtype)
        model.graph.initializer.append(numpy_helper.from_array(ones, value.name))
    del model.graph.value_info[:]


def added(graph: str, tmp_path: Path, **axes: int) -> Model:
    (tmp_path / "given").mkdir()
    source = OnnxFile(edited(graph, fill)(tmp_path / "given"))
    return add(Request(source, "counted", Wanted(given=GivenLengths(axes))), tmp_path / "all").model


def measured(model: Model) -> Arithmetic:
    return measure(model, samples_for(model)[0].inputs)


@pytest.mark.parametrize(
    ("graph", "multiplications"),
    [
        ("g (float[N,3] x) => (float[N,5] y) <float[3,5] w> { y = MatMul(x, w) }", 3 * 5),
        ("g (float[N,2,3] x) => (float[N,2,5] y) <float[3,5] w> { y = MatMul(x, w) }", 2 * 3 * 5),
        (
            "g (float[N,3] x) => (float[N,5] y) <float[5,3] w> { y = Gemm <transB = 1> (x, w) }",
            3 * 5,
        ),
        (
            "g (float[3,2] x) => (float[2,5] y) <float[3,5] w> { y = Gemm <transA = 1> (x, w) }",
            2 * 3 * 5,
        ),
        (
            "g (uint8[N,3] x) => (int32[N,5] y) <uint8[3,5] w> { y = MatMulInteger(x, w) }",
            3 * 5,
        ),
        (
            (
                "g (float[N,4,6,6] x) => (float[N,8,4,4] y) <float[8,2,3,3] w> "
                "{ y = Conv <group = 2> (x, w) }"
            ),
            8 * 4 * 4 * 2 * 9,
        ),
        (
            (
                "g (float[N,4,6,6] x) => (float[N,2,8,8] y) <float[4,2,3,3] w> "
                "{ y = ConvTranspose (x, w) }"
            ),
            4 * 6 * 6 * 2 * 9,
        ),
        (
            (
                "g (float[7,2,3] x) => (float[7,1,2,5] y) <float[1,15,3] w, float[1,15,5] r> "
                "{ y = GRU <hidden_size = 5> (x, w, r) }"
            ),
            7 * 2 * 15 * (3 + 5),
        ),
        (
            (
                "g (float[N,7,6] q, float[N,9,6] k) => (float[N,7,6] y) "
                "{ y = com.microsoft.MultiHeadAttention <num_heads = 2> (q, k, k) }"
            ),
            2 * 7 * 9 * 6,
        ),
        (
            (
                "g (float[N,7,6] x) => (float[N,7,6] y) <float[6,18] w, float[18] b> "
                "{ y = com.microsoft.Attention <num_heads = 2> (x, w, b) }"
            ),
            7 * 6 * 18 + 2 * 7 * 7 * 6,
        ),
    ],
)
def test_multiplications_are_counted(graph: str, multiplications: int, tmp_path: Path) -> None:
    found = measured(added(graph, tmp_path))
    assert found.flops == 2 * multiplications
    assert (found.counted, found.moving, found.uncounted) == (1, 0, {})


def test_operators_inside_loops_count_as_often_as_they_run(tmp_path: Path) -> None:
    graph = (
        "g (float[2,3] x, int64 times) => (float[2,3] y) <float[3,3] w> { "
        "y = Loop (times, , x) <body = b (int64 step, bool go, float[2,3] m) "
        "=> (bool on, float[2,3] n) { on = Identity(go) n = MatMul(m, w) }> }"
    )
    model = added(graph, tmp_path)
    inputs = {"x": np.ones((2, 3), np.float32), "times": np.array([5])}
    found = measure(model, inputs)
    assert (found.flops, found.counted) == (5 * 2 * 2 * 9, 5)
    assert set(found.uncounted) == set()


def test_what_is_not_counted_is_named_and_what_moves_data_is_not(tmp_path: Path) -> None:
    graph = "g (float[N,3] x) => (float[3,N] y) { z = Tanh(x) u = Tanh(z) y = Transpose(u) }"
    found = measured(added(graph, tmp_path))
    assert (found.flops, found.moving, found.uncounted) == (0, 1, {"Tanh": 2})
    assert found.operators == 3


def test_intensity_counts_weights_once_for_a_batch() -> None:
    found = Arithmetic(1000, 1, 0, {}, weight_bytes=90, tensor_bytes=10)
    assert found.intensity() == 1000 / 100
    assert found.intensity(rows=11) == 11_000 / 200


def test_a_profile_without_operators_is_no_division_by_zero() -> None:
    assert count([], weight_bytes=8, tensor_bytes=8).flops == 0


def test_a_network_is_counted_as_pytorch_counts_it(tmp_path: Path) -> None:
    network = torch.nn.Sequential(
        torch.nn.Conv2d(3, 8, 3, stride=2, padding=1),
        torch.nn.ReLU(),
        torch.nn.Conv2d(8, 8, 3, groups=8),
        torch.nn.Flatten(),
        torch.nn.Linear(8 * 6 * 6, 10),
    ).eval()
    example = torch.zeros(1, 3, 16, 16)
    with FlopCounterMode(display=False) as theirs:
        network(example)
    torch.jit.save(torch.jit.trace(network, example), tmp_path / "network.pt")
    wanted = Wanted(given=GivenLengths(shapes={"input": (1, 3, 16, 16)}))
    model = add(Request(TorchScriptFile(tmp_path / "network.pt"), wanted=wanted), tmp_path / "all")
    assert measured(model.model).flops == theirs.get_total_flops() > 0
