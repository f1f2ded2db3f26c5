"""Configurations that hand and haste write: what the linter must say, and what Triton does."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from onnx import helper

from serving.models.repository import Model
from tests.sample_models import Port, write_model

GOOD = """\
name: "NAME"
backend: "onnxruntime"
max_batch_size: 8
input [
  { name: "x" data_type: TYPE_FP32 dims: [ 4 ] }
]
output [
  { name: "y" data_type: TYPE_FP32 dims: [ 4 ] }
]
instance_group [ { count: 1 kind: KIND_CPU } ]
parameters { key: "intra_op_thread_count" value { string_value: "1" } }
parameters { key: "inter_op_thread_count" value { string_value: "1" } }
"""
CHAIN = """\
name: "NAME"
platform: "ensemble"
max_batch_size: 8
input [ { name: "a" data_type: TYPE_FP32 dims: [ 4 ] } ]
output [ { name: "b" data_type: TYPE_FP32 dims: [ 4 ] } ]
ensemble_scheduling { step [
  { model_name: "first" model_version: -1
    input_map { key: "x" value: "a" }
    output_map { key: "y" value: "t" } },
  { model_name: "second" model_version: -1
    input_map { key: "x" value: "t" }
    output_map { key: "y" value: "b" } }
] }
"""
SIDE_STEP = """\
  { model_name: "first" model_version: -1
    input_map { key: "x" value: "a" }
    output_map { key: "y" value: "side" } },
  { model_name: "second" model_version: -1
"""


@dataclass(frozen=True)
class Broken:
    """A good configuration with ``edits`` (old, new) made to it.

    Attributes:
        line: where the linter must point; 1 for what is missing.
        severity: of the finding whose text has ``told``.
        loads: whether Triton 2.51 loads it.
    """

    name: str
    edits: Sequence[tuple[str, str]]
    line: int
    told: str
    severity: str = "error"
    loads: bool = False
    good: str = GOOD

    @property
    def text(self) -> str:
        text = self.good
        for old, new in self.edits:
            assert old in text, (self.name, old)
            text = text.replace(old, new, 1)
        return text.replace("NAME", self.name)


def warned(name: str, edits: Sequence[tuple[str, str]], line: int, told: str) -> Broken:
    """What Triton loads and yet does not mean what was probably meant."""
    return Broken(name, edits, line, told, "warning", loads=True)


def chained(name: str, edits: Sequence[tuple[str, str]], line: int, told: str) -> Broken:
    return Broken(name, edits, line, told, good=CHAIN)


def ending(more: str) -> list[tuple[str, str]]:
    """``more`` on line 13."""
    last = GOOD.splitlines(keepends=True)[-1]
    return [(last, last + more + "\n")]


UNBATCHED = [("size: 8", "size: 0"), ("[ 4 ]", "[ -1, 4 ]"), ("dims: [ 4 ]", "dims: [ -1, 4 ]")]

SYNTAX = (
    Broken("trailing_comma", [("[ 4 ] }\n]", "[ 4 ] },\n]")], 5, "a comma stands before the end"),
    Broken("comma_in_dims", [("[ 4 ]", "[ 4, ]")], 5, "a comma stands before the end"),
    Broken("type_bytes", [("TYPE_FP32", "TYPE_BYTES")], 5, "TYPE_STRING"),
    Broken("quoted_type", [("TYPE_FP32", '"TYPE_FP32"')], 5, "Write TYPE_FP32 without quotes"),
    Broken("unknown_type", [("TYPE_FP32", "TYPE_FLOAT32")], 5, "Did you mean TYPE_FP32?"),
    Broken("unknown_field", [("max_batch", "max_bach")], 3, "Did you mean max_batch_size?"),
    Broken("twice", [("size: 8", "size: 8\nmax_batch_size: 4")], 4, "multiple"),
    Broken("unclosed", [("KIND_CPU } ]", "KIND_CPU }")], 11, 'Expected ","'),
    Broken("two_schedulers", ending("dynamic_batching { } sequence_batching { }"), 13, "oneof"),
)
TENSORS = (
    Broken("other_name", [("NAME", "someone")], 1, "its folder 'other_name'"),
    Broken("empty_axis", [("[ 4 ]", "[ 0 ]")], 5, r"dims [0]"),
    Broken("below_minus_one", [("[ 4 ]", "[ -2 ]")], 5, "dims [-2]"),
    Broken("no_dims", [("dims: [ 4 ]", "")], 5, "input 'x' has no dims"),
    Broken("no_type", [(" data_type: TYPE_FP32", "")], 5, "input 'x' has no data_type"),
    Broken("negative_batch", [("size: 8", "size: -1")], 3, "max_batch_size is -1"),
    Broken(
        "reshape_that_grows",
        [("dims: [ 4 ]", "dims: [ 4 ] reshape { shape: [ 2 ] }")],
        5,
        "4 elements in dims [4] and 2 in reshape [2]",
    ),
    Broken(
        "empty_reshape",
        [*UNBATCHED, ("[ -1, 4 ]", "[ 1 ] reshape { shape: [ ] }")],
        5,
        "dims [ 1 ] serves a tensor without any axis",
    ),
    warned(
        "input_twice",
        [("[ 4 ] }", '[ 4 ] },\n  { name: "x" data_type: TYPE_FP32 dims: [ 4 ] }')],
        6,
        "input 'x' stands there twice",
    ),
    warned(
        "batch_unwritten",
        [*UNBATCHED, ("max_batch_size: 0\n", "")],
        1,
        "max_batch_size is not written",
    ),
)
BATCHING = (
    Broken(
        "prefers_too_many",
        ending("dynamic_batching {\n  preferred_batch_size: [ 4, 16 ]\n}"),
        14,
        "preferred_batch_size 16 is outside 1..8",
    ),
    Broken(
        "prefers_without_batches",
        [*UNBATCHED, *ending("dynamic_batching { preferred_batch_size: [ 2 ] }")],
        13,
        "preferred_batch_size 2 is outside 1..0",
    ),
    warned(
        "batcher_without_batches",
        [*UNBATCHED, *ending("dynamic_batching { }")],
        13,
        "Triton never joins requests",
    ),
)
PLACEMENT = (
    Broken("no_gpu_here", [("KIND_CPU", "KIND_GPU")], 10, "CUDA sees no GPU"),
    Broken("gpus_of_a_cpu", [("KIND_CPU", "KIND_CPU gpus: [ 0 ]")], 10, "KIND_GPU, or take"),
    Broken("unknown_backend", [('"onnxruntime"', '"onnxrt"')], 2, "Did you mean onnxruntime?"),
    Broken(
        "version_not_here",
        ending("version_policy {\n  specific { versions: [ 3 ] }\n}"),
        13,
        "names none of the versions",
    ),
    Broken(
        "warm_up_of_another",
        ending(
            'model_warmup { name: "w" batch_size: 1\n  inputs { key: "q" '
            "value { data_type: TYPE_FP32 dims: [ 4 ] zero_data: true } } }"
        ),
        13,
        "warm-up 'w' gives q",
    ),
    Broken(
        "warm_up_too_large",
        ending(
            'model_warmup { name: "w" batch_size: 99\n  inputs { key: "x" '
            "value { data_type: TYPE_FP32 dims: [ 4 ] zero_data: true } } }"
        ),
        13,
        "has 99 rows",
    ),
    warned("no_group", [("instance_group [ { count: 1 kind: KIND_CPU } ]\n", "")], 1, "else 2"),
    warned("no_count", [("count: 1 ", "")], 10, "states no count, which means 2 instances"),
    warned("no_kind", [(" kind: KIND_CPU", "")], 10, "states no kind"),
    warned("no_backend", [('backend: "onnxruntime"\n', "")], 1, "there is no backend"),
    warned("no_threads", [('parameters { key: "intra_op', '# { key: "intra')], 1, "every core"),
)
ENSEMBLES = (
    chained("not_produced", [('name: "b"', 'name: "c"')], 5, "tensor 'c' to the ensemble's output"),
    chained(
        "dead_tensor",
        [('  { model_name: "second" model_version: -1\n', SIDE_STEP)],
        12,
        "tensor 'side' from step 2 (first) is never read",
    ),
    chained(
        "unused_input",
        [("dims: [ 4 ] } ]", 'dims: [ 4 ] },\n  { name: "z" data_type: TYPE_FP32 dims: [ 4 ] } ]')],
        5,
        "tensor 'z' from the ensemble's input is never read",
    ),
    chained("integers_in_front", [("TYPE_FP32", "TYPE_INT32")], 8, "tensor 'a' is INT32 from"),
    chained("other_shape", [("[ 4 ]", "[ 5 ]")], 8, "tensor 'a' has shape [-1, 5] from"),
    chained(
        "larger_batch", [("size: 8", "size: 16")], 3, "16 is more than the 8 of step 1 (first)"
    ),
    chained("misspelt", [('"second"', '"secnd"')], 10, "step 2 (secnd): there is no such model"),
    chained("comma_after_step", [('"b" } }\n', '"b" } },\n')], 12, "a comma stands before the end"),
    chained("other_key", [('key: "x" value: "t"', 'key: "xx" value: "t"')], 11, "names 'xx'"),
    chained("other_out", [('key: "y" value: "b"', 'key: "yy" value: "b"')], 12, "names 'yy'"),
    chained(
        "nothing_mapped",
        [('    input_map { key: "x" value: "t" }\n', "")],
        10,
        "step 2 (second): nothing goes to its input 'x'",
    ),
    chained("written_twice", [('"y" value: "b"', '"y" value: "t"')], 12, "tensor 't' comes from"),
    chained("circle", [('"x" value: "a"', '"x" value: "b"')], 7, "wait for each other"),
    chained("no_version", [('"second" model_version: -1', '"second"')], 10, "is not written"),
    chained(
        "seventh_version", [('"second" model_version: -1', '"second" model_version: 7')], 10, "7"
    ),
    chained("itself", [('"second"', '"itself"')], 10, "is the ensemble itself"),
    chained("own_group", [("] }\n", "] }\ninstance_group [ { count: 1 } ]\n")], 14, "of its own"),
)
BROKEN = (*SYNTAX, *TENSORS, *BATCHING, *PLACEMENT, *ENSEMBLES)


def write_all(root: Path) -> None:
    """Every broken configuration, and the good models that ensembles are made of."""
    graph = helper.make_node("Identity", ["x"], ["y"])
    source = write_model(
        root,
        "source",
        [graph],
        [Port("x", "FP32", (4,))],
        [Port("y", "FP32", (4,))],
        max_batch_size=8,
    )
    for name in ("first", "second"):
        write(root, name, GOOD.replace("NAME", name), source)
    write(root, "chain", CHAIN.replace("NAME", "chain"), None)
    for case in BROKEN:
        write(root, case.name, case.text, source if case.good is GOOD else None)
    shutil.rmtree(source.folder)


def write(root: Path, name: str, text: str, source: Model | None) -> None:
    folder = root / name / "1"
    folder.mkdir(parents=True)
    (root / name / "config.pbtxt").write_text(text)
    if source:
        shutil.copyfile(source.file, folder / "model.onnx")
