"""Channels go together or not at all: removing dead ones changes no answer."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import numpy_helper, parser

from serving.models.variants.channels import channel_groups
from serving.models.variants.pruned import prune

WIDTH = 16
DEAD = (1, 2, 5, 6, 9, 10, 13, 14)
ALL = np.s_[:]

# A block as mobile networks have it, a residual sum, scales beside it, and a classifier behind.
NETWORK = f"""
<ir_version: 8, opset_import: ["" : 17]>
network (float[batch, 3, 8, 8] x) => (float[batch, 5] y)
{{
    a = Conv <pads = [1, 1, 1, 1]> (x, stem, stem_bias)
    b = Relu (a)
    c = Conv <group = {WIDTH}, pads = [1, 1, 1, 1]> (b, each, each_bias)
    d = BatchNormalization (c, gamma, beta, mean, variance)
    e = Conv (d, back, back_bias)
    f = Mul (e, scale)
    g = Add (a, f)
    h = GlobalAveragePool (g)
    i = Flatten (h)
    y = Gemm <transB = 1> (i, head, head_bias)
}}
"""


def network(text: str = NETWORK, **weights: np.ndarray) -> onnx.ModelProto:
    """The graph of ``text`` with random weights, or those given."""
    rng = np.random.default_rng(3)
    shapes = {
        "stem": (WIDTH, 3, 3, 3),
        "each": (WIDTH, 1, 3, 3),
        "back": (WIDTH, WIDTH, 1, 1),
        "scale": (1, WIDTH, 1, 1),
        "head": (5, WIDTH),
        "head_bias": (5,),
        **dict.fromkeys(
            ("stem_bias", "each_bias", "back_bias", "gamma", "beta", "mean", "variance"), (WIDTH,)
        ),
    }
    model = parser.parse_model(text)
    read = {name for node in model.graph.node for name in node.input}
    made = {name: rng.uniform(0.1, 1, shape) for name, shape in shapes.items()} | weights
    model.graph.initializer.extend(
        numpy_helper.from_array(array.astype(np.float32), name)
        for name, array in made.items()
        if name in read
    )
    onnx.checker.check_model(model, full_check=True)
    return onnx.shape_inference.infer_shapes(model)


def answers(model: onnx.ModelProto) -> np.ndarray:
    session = onnxruntime.InferenceSession(model.SerializeToString())
    x = np.random.default_rng(1).standard_normal((2, 3, 8, 8)).astype(np.float32)
    found: np.ndarray = session.run(None, {"x": x})[0]
    return found


def without_dead_channels() -> onnx.ModelProto:
    """The network, half of whose channels are zero wherever they are made, carried or read."""
    model = network()
    for weight in model.graph.initializer:
        array = numpy_helper.to_array(weight).copy()
        for axis, length in enumerate(array.shape):
            if length == WIDTH and weight.name != "variance":
                array[(ALL,) * axis + (list(DEAD),)] = 0
        weight.CopyFrom(numpy_helper.from_array(array, weight.name))
    return model


def test_removing_dead_channels_changes_no_answer() -> None:
    model = without_dead_channels()
    before = answers(model)
    assert before.std() > 0
    assert prune(model, 0.5) == (8, 16)
    onnx.checker.check_model(model, full_check=True)
    np.testing.assert_allclose(answers(model), before, rtol=1e-5)
    shapes = {weight.name: tuple(weight.dims) for weight in model.graph.initializer}
    assert shapes["stem"] == (8, 3, 3, 3)
    assert shapes["each"] == (8, 1, 3, 3)
    assert shapes["back"] == (8, 8, 1, 1)
    assert shapes["scale"] == (1, 8, 1, 1)
    assert shapes["head"] == (5, 8)
    assert shapes["variance"] == (8,)


def test_removing_live_channels_changes_the_answers() -> None:
    model = network()
    before = answers(model)
    prune(model, 0.5)
    assert not np.allclose(answers(model), before, rtol=1e-2)


def test_what_a_sum_joins_is_one_group() -> None:
    (group,) = channel_groups(network())
    assert group.width == WIDTH
    assert {slot.weight for slot in group.filters} == {"stem", "back"}
    assert group.depthwise == ("c",)


def test_the_smallest_norms_go_first() -> None:
    stem = np.ones((WIDTH, 3, 3, 3))
    stem[[3, 4]] = 0.01
    text = """
    <ir_version: 8, opset_import: ["" : 17]>
    network (float[batch, 3, 8, 8] x) => (float[batch, 16, 6, 6] y)
    { a = Conv (x, stem)  y = Conv (a, back) }
    """
    model = network(text, stem=stem, back=np.ones((WIDTH, WIDTH, 1, 1)))
    assert prune(model, 0.5) == (8, 16)
    kept = next(w for w in model.graph.initializer if w.name == "stem")
    assert numpy_helper.to_array(kept).min() == 1.0


@pytest.mark.parametrize(("ratio", "left"), [(0.01, 16), (0.4, 16), (0.5, 8), (0.99, 8)])
def test_a_multiple_of_8_is_left(ratio: float, left: int) -> None:
    model = network()
    prune(model, ratio)
    assert next(w for w in model.graph.initializer if w.name == "stem").dims[0] == left


@pytest.mark.parametrize(
    "operators",
    [
        "y = Flatten (a)",
        "b = Concat <axis = 1> (a, a)  c = GlobalAveragePool (b)  y = Flatten (c)",
        "b = Softmax <axis = 1> (a)  c = Conv (b, back)  d = GlobalMaxPool (c)  y = Flatten (d)",
        "b = GlobalAveragePool (a)  y = Reshape (b, sixteen)",
        "b = Conv <group = 2> (a, grouped)  c = GlobalAveragePool (b)  y = Flatten (c)",
        "b = Add (a, row)  c = Conv (b, back)  y = Flatten (c)",
    ],
    ids=["output", "concat", "softmax", "stated length", "grouped", "not per channel"],
)
def test_where_an_operator_is_unknown_channels_are_left_whole(operators: str) -> None:
    text = f"""
    <ir_version: 8, opset_import: ["" : 17]>
    network (float[batch, 3, 8, 8] x) => (float[batch, many] y)
    <int64[2] sixteen = {{-1, 16}}>
    {{ a = Conv (x, stem) {operators} }}
    """
    grouped, row = np.ones((WIDTH, WIDTH // 2, 1, 1)), np.ones((1, 1, 1, 6))
    groups = channel_groups(network(text, grouped=grouped, row=row))
    assert "stem" not in {slot.weight for group in groups for slot in group.filters}


def test_a_weight_that_two_convolutions_share_is_left_whole() -> None:
    text = """
    <ir_version: 8, opset_import: ["" : 17]>
    network (float[batch, 16, 8, 8] x) => (float[batch, 16, 8, 8] y)
    { a = Conv (x, back)  b = Conv (a, back)  y = Conv (b, last) }
    """
    shared = np.ones((WIDTH, WIDTH, 1, 1))
    assert not channel_groups(network(text, last=shared))
    separate = network(text.replace("(a, back)", "(a, other)"), last=shared, other=shared)
    assert len(channel_groups(separate)) == 2
