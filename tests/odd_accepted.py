"""Odd models that can be served, and what their ``config.pbtxt`` must say."""

from __future__ import annotations

from serving.models.generated import ValueRange
from tests.odd_models import (
    RELU,
    Accepted,
    edited,
    external,
    hard_linked,
    identities,
    linked_inside,
    listed_weights,
    quoted,
    text,
    then,
)

NUMBERS = (
    *("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
    *("float16", "float", "double"),
)
ODD_NAMES = ("a/b:0", "it's", "é中", "sp ace", "100%", "#1")

SHAPES = (
    Accepted("symbolic", text(RELU), batch=8, dims=((4,), (4,)), told="together as alone"),
    Accepted("asked_for_none", text(RELU), max_batch_size=0, batch=0, dims=((-1, 4), (-1, 4))),
    Accepted("one_at_most", text(RELU), max_batch_size=1, batch=1, dims=((4,), (4,))),
    Accepted(
        "fixed_to_one",
        text("g (float[1,4] x) => (float[1,4] y) { y = Relu(x) }"),
        batch=0,
        dims=((1, 4), (1, 4)),
        told="'x' starts with an axis of fixed length 1; for batches export it again",
    ),
    Accepted(
        "no_batch_axis",
        text("g (float[3,4] m) => (float[4,3] t) { t = Transpose(m) }"),
        batch=0,
        dims=((3, 4), (4, 3)),
        told="fixed length 3",
    ),
    Accepted(
        "batch_comes_second",
        text("g (float[2,N,4] state) => (float[2,N,4] next) { next = Relu(state) }"),
        axes={"N": 1},
        batch=0,
        dims=((2, -1, 4), (2, -1, 4)),
        told="'state' starts with an axis of fixed length 2",
    ),
    Accepted(
        "rank_0_input",
        text("g (float[N,4] x, float gain) => (float[N,4] y) { y = Mul(x, gain) }"),
        batch=0,
        dims=((-1, 4), (1,), (-1, 4)),
        told="'gain' has no axis at all",
    ),
    Accepted(
        "rank_0_output",
        text("g (float[N,4] x) => (float y) { y = ReduceSum <keepdims = 0> (x) }"),
        batch=0,
        dims=((-1, 4), (1,)),
        told="'y' has no axis at all",
    ),
    Accepted(
        "labels",
        text(
            "g (float[N,4] X) => (int64[N] label, float[N,3] probabilities) { "
            "label, probabilities = ai.onnx.ml.LinearClassifier "
            '<classlabels_ints = [0,1,2], multi_class = 1, post_transform = "SOFTMAX", '
            "coefficients = [1.0,2.0,3.0,4.0,4.0,3.0,2.0,1.0,0.5,0.0,-0.5,1.0], "
            "intercepts = [0.0,0.1,0.2]> (X) }"
        ),
        batch=0,
        dims=((-1, 4), (-1,), (-1, 3)),
        told="'label' has one axis only",
    ),
    Accepted(
        "five_axes",
        text("g (float[N,1,2,3,4] x) => (float[N,1,2,3,4] y) { y = Tanh(x) }"),
        batch=8,
        dims=((1, 2, 3, 4), (1, 2, 3, 4)),
    ),
    Accepted(
        "axes_without_names",
        text("g (float[?,3,?] x) => (float[?,3,?] y) { y = Relu(x) }"),
        shapes={"x": (1, 3, 5)},
        batch=8,
        dims=((3, -1), (3, -1)),
    ),
    Accepted(
        "minus_one",
        text("g (float[-1,4] x) => (float[-1,4] y) { y = Relu(x) }"),
        batch=8,
        dims=((4,), (4,)),
    ),
    Accepted(
        "two_names_for_rows",
        text("g (float[m,4] a, float[n,4] b) => (float[o,4] y) { y = Add(a, b) }"),
        batch=8,
        dims=((4,), (4,), (4,)),
    ),
    Accepted(
        "square",
        text("g (float[n,n] x) => (float[n,n] y) { y = Relu(x) }"),
        axes={"n": 2},
        batch=0,
        dims=((-1, -1), (-1, -1)),
        told="axis 'n' stands inside 'x' too",
    ),
    Accepted(
        "pairs_of_rows",
        text(
            'g (float[N,4] a, float["2*N",4] b) => (float["3*N",4] y) '
            "{ y = Concat <axis = 0> (a, b) }"
        ),
        batch=0,
        dims=((-1, 4), (-1, 4), (-1, 4)),
        told="input 'b' has 2 rows where another has 1",
    ),
    Accepted(
        "wrong_declaration",
        text("g (float[batch,4] x) => (float[2,2] y) <int64[2] s = {-1,2}> { y = Reshape(x, s) }"),
        batch=0,
        dims=((-1, 4), (-1, 2)),
        told=r"declared \[2, 2\] and is \[2, 2\] for 1 row and \[6, 2\] for 3 rows: .* unreliable",
    ),
    Accepted(
        "rows_multiply",
        text("g (float[N,4] x) => (float[M,2] y) <int64[2] s = {-1,2}> { y = Reshape(x, s) }"),
        batch=0,
        dims=((-1, 4), (-1, 2)),
        told=r"output 'y' has shape \[6, 2\] for 3 rows",
    ),
    Accepted(
        "no_output_shape",
        text("g (float[N,4] x, int64[k] s) => (float[] y) { y = Reshape(x, s) }"),
        axes={"k": 2},
        ranges={"s": ValueRange(2, 2)},
        batch=0,
        dims=((1, 4), (-1,), (-1, -1)),
        told="declared of unknown shape and is",
    ),
    Accepted(
        "no_shape_at_all",
        text("g (float[] x) => (float[] y) { y = Relu(x) }"),
        shapes={"x": (1, 3, 5)},
        batch=8,
        dims=((-1, -1), (-1, -1)),
    ),
    Accepted(
        "as_many_as_found",
        text("g (float[N,4] x) => (int64[2,found] y) { y = NonZero(x) }"),
        batch=0,
        dims=((-1, 4), (2, -1)),
        told="'y' starts with an axis of fixed length 2",
    ),
)

FREE_LENGTHS = (
    Accepted(
        "token_ids",
        text(
            "g (int64[N,seq] ids) => (float[N,seq,2] y) "
            "<int64[2] s = {100,2}> { row = Constant <value_floats = [1.0,2.0]> () "
            "table = Expand(row, s) y = Gather(table, ids) }"
        ),
        axes={"seq": 6},
        batch=8,
        dims=((-1,), (-1, 2)),
        told="ids 1x6 of 0..1",
    ),
    Accepted(
        "token_ids_with_a_range",
        text(
            "g (int64[N,seq] ids) => (float[N,seq] y) { "
            "table = Constant <value_floats = [0.0,1.0,2.0,3.0,4.0,5.0,6.0,7.0,8.0,9.0]> () "
            "y = Gather(table, ids) }"
        ),
        axes={"seq": 6},
        ranges={"ids": ValueRange(0, 9)},
        batch=8,
        dims=((-1,), (-1,)),
        told=r"ids 1x6 of 0\.\.9",
    ),
    Accepted(
        "one_name_in_two_inputs",
        text(
            "g (float[n,seq] a, float[n,seq] b) => (float[n,all] y) { y = Concat <axis=1> (a, b) }"
        ),
        axes={"seq": 3},
        batch=8,
        dims=((-1,), (-1,), (-1,)),
        told="a 1x3 .*b 1x3",
    ),
    Accepted(
        "computed_axis",
        text(
            'g (float[N,seq] new, float[N,past] old, float[N,"past + seq"] mask) '
            "=> (float[N,all] y) { joined = Concat <axis=1> (old, new) y = Mul(joined, mask) }"
        ),
        axes={"seq": 2, "past": 5},
        batch=8,
        dims=((-1,), (-1,), (-1,), (-1,)),
        told="mask 1x7",
    ),
)

DEPENDENT = (
    Accepted(
        "mean_of_the_batch",
        text(
            "g (float[N,3] x) => (float[N,3] y) "
            "{ mean = ReduceMean <axes = [0], keepdims = 1> (x) y = Sub(x, mean) }"
        ),
        batch=0,
        dims=((-1, 3), (-1, 3)),
        told=r"output 'y' of a row changes by [\d.]+ with the rows beside it",
    ),
    Accepted(
        "scaled_by_the_batch",
        text(
            "g (float[N,4] x) => (float[N,4] y) { q, scale, zero = DynamicQuantizeLinear(x) "
            "y = DequantizeLinear(q, scale, zero) }"
        ),
        ranges={"x": ValueRange(-99, 99)},
        batch=0,
        dims=((-1, 4), (-1, 4)),
        told="DynamicQuantizeLinear scales a whole batch",
    ),
    Accepted(
        "always_alike",
        text("g (float[N,4] x) => (float[N,4] y) { y = Sub(x, x) }"),
        batch=8,
        dims=((4,), (4,)),
        told="alike or not finite.*give real inputs",
    ),
    Accepted(
        "one_row_only",
        text(
            "g (float[N,8] x) => (float[N,8] y) <float zero = {0}, float[2] shape = {1,8}> { "
            "none = Mul(x, zero) most = ReduceMax <keepdims = 0> (none) "
            "sum = Add(shape, most) s = Cast <to = 7> (sum) y = Reshape(x, s) }"
        ),
        batch=0,
        dims=((1, 8), (-1, 8)),
        told="it takes one row but not 3",
    ),
)

CONTENTS = (
    Accepted(
        "several",
        text(
            "g (float[batch,4] a, float[batch,4] b, bool[batch,1] c) "
            "=> (float[batch,4] picked, float[batch,4] sum, bool[batch,1] same) "
            "{ picked = Where(c, a, b) sum = Add(a, b) same = Identity(c) }"
        ),
        batch=8,
        dims=((4,), (4,), (1,), (4,), (4,), (1,)),
    ),
    Accepted("numbers", text(identities(NUMBERS)), batch=8, dims=((2,),) * 2 * len(NUMBERS)),
    Accepted("texts", text(identities(["string"])), batch=8, dims=((2,), (2,))),
    Accepted("bfloat16", text(identities(["bfloat16"])), batch=8, dims=((2,), (2,)), told="25.02"),
    Accepted("names", text(identities(["float"] * 6, ODD_NAMES)), batch=8, dims=((2,),) * 12),
    Accepted("quotes", edited(RELU, quoted), batch=8, dims=((4,), (4,))),
    Accepted(
        "listed_weights",
        listed_weights,
        batch=8,
        dims=((4,), (4,)),
        told="taken out of the graph's inputs, .*: 1 weights",
    ),
    Accepted("external_weights", external("w.bin"), batch=8, dims=((64,), (64,)), told="w.bin"),
    Accepted(
        "external_below",
        external("data/première partie.bin", "data/2.bin"),
        batch=8,
        dims=((64,), (64,)),
        told="data/première partie.bin, data/2.bin",
    ),
    Accepted("linked_inside", then(external("w.bin"), linked_inside), batch=8, dims=((64,), (64,))),
    Accepted("hard_linked", then(external("w.bin"), hard_linked), batch=8, dims=((64,), (64,))),
    Accepted(
        "own_function",
        text(
            "g (float[N,2] x) => (float[N,2] y) { y = own.Twice(x) } "
            '<domain: "own", opset_import: ["" : 17]> Twice (a) => (b) { b = Add(a, a) }',
            '<ir_version: 8, opset_import: ["" : 17, "own" : 1]>',
        ),
        batch=8,
        dims=((2,), (2,)),
    ),
    Accepted(
        "branches",
        text(
            "g (float[N,2] x, bool up) => (float[N,2] y) { y = If (up) <"
            "then_branch = t () => (float[N,2] a) { a = Relu(x) }, "
            "else_branch = e () => (float[N,2] b) { b = Neg(x) }> }"
        ),
        batch=0,
        dims=((-1, 2), (1,), (-1, 2)),
    ),
    Accepted(
        "contributed_operator",
        text("g (float[N,4] x) => (float[N,4] y) { y = com.microsoft.Gelu(x) }"),
        batch=8,
        dims=((4,), (4,)),
    ),
    Accepted(
        "quantised",
        text(
            "g (float[N,4] x) => (float[N,4] y) { scale = Constant <value_float = 0.1> () "
            "zero = Constant <value = int8 {3}> () "
            "q = QuantizeLinear(x, scale, zero) y = DequantizeLinear(q, scale, zero) }"
        ),
        batch=8,
        dims=((4,), (4,)),
    ),
    Accepted(
        "old_operators",
        text(RELU, '<ir_version: 3, opset_import: ["" : 6]>'),
        batch=8,
        dims=((4,), (4,)),
    ),
)

RANDOM = Accepted(
    "random",
    text("g (float[N,4] x) => (float[N,4] y) { y = RandomUniformLike(x) }"),
    batch=0,
    dims=((-1, 4), (-1, 4)),
    told="the same input is answered differently each time",
)
"""No backend can be compared with a reference here."""

REPEATABLE = (*SHAPES, *FREE_LENGTHS, *DEPENDENT, *CONTENTS)
ACCEPTED = (*REPEATABLE, RANDOM)
