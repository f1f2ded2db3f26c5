"""A model's samples as requests, encoded once before any load: the same bytes for every backend."""

from __future__ import annotations

from loadtest.payload import Encoding, Payload
from serving.errors import UsageError
from serving.models.repository import Model
from serving.models.samples import Sample, stack_rows
from serving.models.variants.parameters import tolerance_of
from serving.parity import Reference
from serving.protocol import Tensor, encode_request
from serving.protocol.grpc import encode_infer_request


def payloads_from(
    model: Model, reference: Reference, *, encoding: Encoding = "binary", rows: int = 1
) -> list[Payload]:
    """One request per sample, of that sample and the ``rows`` - 1 that follow it.

    Raises:
        UsageError: the model takes no batches, or fewer rows, or the samples differ in shape.
    """
    _require_batch(model, reference, rows)
    tolerance = tolerance_of(model.config)
    payloads = []
    count = len(reference.samples)
    for start in range(count):
        chosen = [(start + step) % count for step in range(rows)]
        inputs = stack_rows([reference.samples[i] for i in chosen])
        answers = [Sample("", reference.answers[i]) for i in chosen]
        tensors = [Tensor.of(spec.name, inputs[spec.name]) for spec in model.config.inputs]
        expected = {name: Tensor.of(name, array) for name, array in stack_rows(answers).items()}
        if encoding == "grpc":
            body, length = encode_infer_request(model.name, tensors), None
        else:
            body, length = encode_request(tensors, binary=encoding == "binary")
        payloads.append(Payload(body, length, expected, encoding, tolerance))
    return payloads


def _require_batch(model: Model, reference: Reference, rows: int) -> None:
    if rows == 1:
        return
    limit = model.config.max_batch_size
    if rows > limit:
        raise UsageError(
            f"{rows} rows per request are more than model {model.name!r} takes ({max(limit, 1)})",
            hint="Lower --batch, or raise max_batch_size in its config.pbtxt.",
        )
    shapes = {tuple(a.shape for a in sample.inputs.values()) for sample in reference.samples}
    if len(shapes) > 1:
        raise UsageError(
            f"the samples of model {model.name!r} differ in shape and cannot share a batch",
            hint="Use --batch 1.",
        )
