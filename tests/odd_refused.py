"""Odd models that cannot be served, and what the user is told."""

from __future__ import annotations

from onnx import parser

from serving.errors import UsageError
from serving.importing.limits import highest_ir_version, highest_opset
from serving.models.generated import ValueRange
from tests.odd_models import RELU, Refused, cut, external, linked_out, plain_file, text, then

WHOLE = parser.parse_model(f'<ir_version: 8, opset_import: ["" : 17]>\n{RELU}').SerializeToString()

NO_TENSORS = (
    Refused(
        "dictionaries",
        text(
            "g (float[N,2] x) => (seq(map(int64,float)) p) "
            "{ p = ai.onnx.ml.ZipMap <classlabels_int64s = [0,1]> (x) }"
        ),
        told=r'\'p\' is of type seq\(map\(int64,tensor\(float\)\)\).*"zipmap": False',
    ),
    Refused(
        "sequence",
        text("g (float[N,2] x) => (seq(float[a,b]) parts) { parts = SplitToSequence(x) }"),
        told=r"'parts' is of type seq\(tensor\(float\)\).*stack or concatenate",
    ),
    Refused(
        "optional",
        text("g (optional(float[N,2]) x) => (float[N,2] y) { y = OptionalGetElement(x) }"),
        told=r"'x' is of type optional\(tensor\(float\)\).*always there",
    ),
    Refused(
        "complex_numbers",
        text("g (complex64[N,2] x) => (complex64[N,2] y) { y = Identity(x) }"),
        told="'x' is of type COMPLEX64.*Export the model again with a cast",
    ),
    Refused(
        "eight_bit_floats",
        text(
            "g (float8e4m3fn[N,2] x) => (float8e4m3fn[N,2] y) { y = Identity(x) }",
            '<ir_version: 9, opset_import: ["" : 19]>',
        ),
        told="'x' is of type FLOAT8E4M3FN",
    ),
    Refused(
        "nothing_to_ask",
        text("g () => (float[1] y) { y = Constant <value_floats = [1.0]> () }"),
        told="has no inputs",
    ),
    Refused(
        "empty_axis",
        text("g (float[N,0] x) => (float[N,0] y) { y = Relu(x) }"),
        told=r"'x' \[N, 0\] would be empty",
        error=UsageError,
    ),
)

TOO_NEW = (
    Refused(
        "newer_format",
        text(RELU, f'<ir_version: {highest_ir_version() + 1}, opset_import: ["" : 17]>'),
        told=f"IR version {highest_ir_version() + 1}, and .* reads up to {highest_ir_version()}",
    ),
    Refused(
        "newer_operators",
        text(RELU, f'<ir_version: 8, opset_import: ["" : {highest_opset("") + 1}]>'),
        told=f"set ai.onnx is version {highest_opset('') + 1}, .* up to {highest_opset('')}",
    ),
    Refused(
        "newer_tree_operators",
        text(RELU, '<ir_version: 8, opset_import: ["" : 17, "ai.onnx.ml" : 99]>'),
        told=f"operator set ai.onnx.ml is version 99, .* up to {highest_opset('ai.onnx.ml')}",
    ),
    Refused(
        "unknown_domain",
        text(
            "g (float[N,2] x) => (float[N,2] y) { y = acme.Sharpen(x) }",
            '<ir_version: 8, opset_import: ["" : 17, "acme" : 1]>',
        ),
        told="operators Sharpen are of domain 'acme'.*It has ai.onnx, ai.onnx.ml, com.microsoft",
    ),
    Refused(
        "unknown_operator",
        text("g (float[N,2] x) => (float[N,2] y) { y = com.microsoft.Sharpen(x) }"),
        told="has no operator com.microsoft.Sharpen",
    ),
    Refused(
        "no_kernel",
        text("g (bfloat16[N,2] x) => (bfloat16[N,2] y) { y = Add(x, x) }"),
        told="not runnable on CPUExecutionProvider.*Add",
    ),
    Refused(
        "types_that_do_not_fit",
        text("g (float[N,2] a, int64[N,2] b) => (float[N,2] y) { y = Add(a, b) }"),
        told="cannot be loaded.*Add",
    ),
    Refused(
        "text_beside_bfloat16",
        text(
            "g (bfloat16[N,2] x, string[N,2] s) => (bfloat16[N,2] y, string[N,2] t) "
            "{ y = Identity(x) t = Identity(s) }"
        ),
        told="BYTES beside BF16",
    ),
)

FILES = (
    Refused(
        "weights_missing",
        then(external("w.bin"), lambda folder: (folder / "w.bin").unlink()),
        told="weight file 'w.bin' is missing",
    ),
    Refused(
        "weights_cut",
        then(external("w.bin"), cut("w.bin", 100)),
        told="weight file 'w.bin' is cut off: it has 100 bytes.*'w0' ends at byte 16384",
    ),
    Refused(
        "weights_linked_out",
        then(external("w.bin"), linked_out),
        told="weight file 'w.bin' is a link out of the model's folder.*put a copy",
    ),
    Refused(
        "weights_in_the_parent",
        external("w.bin", given="../w.bin"),
        told=r"'w0' lies in '\.\./w\.bin', which is no path below",
    ),
    Refused("weights_anywhere", external("w.bin", given="/etc/w.bin"), told="'/etc/w.bin'"),
    Refused(
        "weights_under_the_models_name",
        external("model.onnx"),
        told="'model.onnx' has the name that the model itself needs",
    ),
    Refused("no_model", plain_file(b"dear model\n"), told="is no ONNX model"),
    Refused("empty_file", plain_file(b""), told="is no ONNX model"),
    Refused("half_a_file", plain_file(WHOLE[: len(WHOLE) // 2]), told="is no ONNX model"),
    Refused("no_file", lambda folder: folder / "model.onnx", told="does not exist"),
)

INPUTS = (
    Refused(
        "length_not_given",
        text("g (int64[N,seq] ids) => (int64[N,seq] y) { y = Identity(ids) }"),
        told=r"length of axis 'seq' of input 'ids' \[N, seq\] is not known.*--axis 'seq=128'",
        error=UsageError,
    ),
    Refused(
        "rank_not_given",
        text("g (float[] x) => (float[] y) { y = Relu(x) }"),
        told="how many axes input 'x' has.*--input-shape",
        error=UsageError,
    ),
    Refused(
        "one_name_two_lengths",
        text(
            "g (float[n,seq] a, float[n,seq] b) => (float[n,all] y) { y = Concat <axis=1> (a, b) }"
        ),
        shapes={"a": (1, 3), "b": (1, 5)},
        told="given for 'b' says 5 where axis 'seq' is 3",
        error=UsageError,
    ),
    Refused(
        "axis_that_is_not_there",
        text(RELU),
        axes={"seq": 3},
        told="no input has an axis 'seq'. Free axes: batch",
        error=UsageError,
    ),
    Refused(
        "shape_of_another_rank",
        text(RELU),
        shapes={"x": (4,)},
        told=r"has 1 lengths and the graph \[batch, 4\]",
        error=UsageError,
    ),
    Refused(
        "ids_beyond_the_table",
        text(
            "g (int64[N,2] ids) => (float[N,2] y) "
            "{ table = Constant <value_floats = [0.0,1.0,2.0]> () y = Gather(table, ids) }"
        ),
        ranges={"ids": ValueRange(100, 200)},
        told="does not run on made-up inputs.*out of data bounds.*--range",
    ),
    Refused(
        "range_of_no_input",
        text(RELU),
        ranges={"ids": ValueRange(0, 1)},
        told="no input 'ids' to have a range",
        error=UsageError,
    ),
    Refused(
        "range_too_wide",
        text("g (int8[N,2] x) => (int8[N,2] y) { y = Identity(x) }"),
        ranges={"x": ValueRange(0, 300)},
        told=r"the range of 'x' is 0\.\.300.*INT8 can hold",
        error=UsageError,
    ),
)

REFUSED = (*NO_TENSORS, *TOO_NEW, *FILES, *INPUTS)
