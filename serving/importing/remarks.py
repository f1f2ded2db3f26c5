"""What was done with a model, in plain lines."""

from __future__ import annotations

from collections.abc import Iterator

from serving.importing.configuration import Plan
from serving.importing.taking import Taken
from serving.importing.trying import ROWS, Tried
from serving.models.generated import ValueRange
from serving.models.inspection import GraphTensor
from serving.models.samples import GENERATED_COUNT


def about_file(taken: Taken, *, own: bool) -> Iterator[str]:
    """What became of the file, the user's ``own`` or an exported one, and what lies beside it."""
    if own and not taken.changes:
        yield "the file is served as it is, byte for byte"
    yield from taken.changes
    if taken.weight_files:
        yield f"weight files copied beside it: {', '.join(taken.weight_files)}"


def about_datatypes(taken: Taken) -> Iterator[str]:
    """What not every server of today can carry."""
    if any(tensor.datatype == "BF16" for tensor in (*taken.report.inputs, *taken.report.outputs)):
        yield "BF16: Triton's own ONNX Runtime backend refuses it up to release 25.02 at least"


def about_batches(tried: Tried, taken: Taken, plan: Plan) -> Iterator[str]:
    """Whether requests are joined, why not, and how sure that is."""
    trial = tried.trial
    if not tried.why_not_batched and trial:
        yield (
            f"batches of up to {plan.max_batch_size}: {ROWS} rows answer together as alone "
            f"(largest difference {trial.largest_difference:.2g})"
        )
        if not trial.telling:
            yield (
                "the answers to these rows are alike or not finite, so rows that mix may have gone "
                "unnoticed: give real inputs with --sample-inputs"
            )
        return
    yield f"not batched, max_batch_size 0: {tried.why_not_batched}{_way_out(tried, taken)}"
    if plan.rows is not None:
        yield f"it runs on {plan.rows} row only, so that is its first dimension"


def about_inputs(plan: Plan, stored: int) -> str:
    """What checks and load will send."""
    if stored:
        return f"sample inputs: {stored} stored beside the model"
    made = ", ".join(
        f"{tensor.name} {'x'.join(map(str, plan.sample_shapes[tensor.name]))} "
        f"{_values(tensor, plan.ranges.get(tensor.name))}"
        for tensor in plan.report.inputs
    )
    return f"sample inputs: {GENERATED_COUNT} made-up ones, {made}"


def _way_out(tried: Tried, taken: Taken) -> str:
    if "fixed length" in tried.why_not_batched:
        return "; for batches export it again with that axis free"
    if "one axis only" in tried.why_not_batched:
        return "; a request may still bring many rows"
    if tried.trial and tried.trial.takes_more and taken.quantizes_batches:
        return "; DynamicQuantizeLinear scales a whole batch by its largest value"
    return ""


def _values(tensor: GraphTensor, values: ValueRange | None) -> str:
    if values:
        return f"of {values}"
    if tensor.datatype == "BYTES":
        return "of text"
    return (
        "of normal deviates" if tensor.datatype in ("FP16", "BF16", "FP32", "FP64") else "of 0..1"
    )
