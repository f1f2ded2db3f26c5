"""A ``config.pbtxt`` in which everything that a server would otherwise choose is written out.

Without these fields servers differ: Triton's ONNX Runtime backend would make two instances on a
CPU, take every core for each, and turn batching on by itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

from tritonclient.grpc import model_config_pb2 as schema

from serving.importing.axes import Shapes
from serving.models.config import render, with_placement
from serving.models.execution import INTER_OP_THREADS
from serving.models.generated import RANGE_PREFIX, SHAPE_PREFIX, ValueRange
from serving.models.inspection import GraphReport, GraphTensor

LICENCE = "licence"
"""The parameter that holds what the user said of the model's licence."""


@dataclass(frozen=True)
class Plan:
    """What a configuration is written from.

    Attributes:
        max_batch_size: 0 for a model whose requests must not be joined.
        rows: the only number of rows that a model takes which is not batched, though its graph
            leaves that axis free; ``None`` where it takes any.
        sample_shapes: of made-up inputs, as they travel; empty where real ones are stored.
        remarks: lines for the head of the file.
    """

    name: str
    report: GraphReport
    max_batch_size: int
    rows: int | None = None
    sample_shapes: Shapes = field(default_factory=dict)
    ranges: Mapping[str, ValueRange] = field(default_factory=lambda: MappingProxyType({}))
    licence: str = ""
    remarks: Sequence[str] = ()


def configuration(plan: Plan) -> str:
    """The text of ``config.pbtxt``."""
    message = schema.ModelConfig(
        name=plan.name,
        backend="onnxruntime",
        max_batch_size=plan.max_batch_size,
        input=[
            schema.ModelInput(
                name=tensor.name,
                data_type=_data_type(tensor),
                dims=_dims(plan, tensor, pinned=plan.rows),
            )
            for tensor in plan.report.inputs
        ],
        output=[
            schema.ModelOutput(
                name=tensor.name, data_type=_data_type(tensor), dims=_dims(plan, tensor)
            )
            for tensor in plan.report.outputs
        ],
    )
    if plan.max_batch_size > 1:
        # Without a delay requests are joined only while others are being answered.
        message.dynamic_batching.max_queue_delay_microseconds = 0
    for key, text in _parameters(plan):
        message.parameters[key].string_value = text
    message = with_placement(message, instances=1, intra_op_threads=1)
    # Fields of the default value are left out of text, and 0 is what must be said here.
    stated = render(message)
    if not plan.max_batch_size:
        stated = stated.replace("input {", "max_batch_size: 0\ninput {", 1)
    return "".join(f"# {' '.join(line.split())}\n" for line in plan.remarks) + stated


def _parameters(plan: Plan) -> Iterator[tuple[str, str]]:
    yield INTER_OP_THREADS, "1"
    if plan.licence:
        yield LICENCE, plan.licence
    for tensor in plan.report.inputs:
        shape = plan.sample_shapes.get(tensor.name, ())[1 if plan.max_batch_size else 0 :]
        if -1 in _dims(plan, tensor, pinned=plan.rows) and shape:
            yield SHAPE_PREFIX + tensor.name, ",".join(map(str, shape))
        if tensor.name in plan.ranges:
            yield RANGE_PREFIX + tensor.name, str(plan.ranges[tensor.name])


def _dims(plan: Plan, tensor: GraphTensor, *, pinned: int | None = None) -> list[int]:
    """Without the batch axis; one of 1 for a tensor without any, since text must state one."""
    axes = list(tensor.dims or (1,))
    if pinned is not None and len(axes) > 1 and isinstance(axes[0], str):
        axes[0] = pinned
    return [axis if isinstance(axis, int) else -1 for axis in axes][
        1 if plan.max_batch_size else 0 :
    ]


def _data_type(tensor: GraphTensor) -> schema.DataType:
    name = "STRING" if tensor.datatype == "BYTES" else tensor.datatype
    return schema.DataType.Value(f"TYPE_{name}")
