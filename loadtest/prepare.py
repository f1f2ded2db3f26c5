"""A model's samples as requests, encoded once before any load: the same bytes for every backend."""

from __future__ import annotations

import time
from collections.abc import Sequence
from statistics import median

from loadtest.payload import Encoding, Payload
from serving.errors import UsageError
from serving.models.repository import Model
from serving.models.samples import Sample, stack_rows
from serving.models.variants.parameters import tolerance_of
from serving.parity import Reference
from serving.protocol import ProtocolError, Tensor, encode_request
from serving.protocol.grpc import encode_infer_request

_ENCODING_NS = 50_000_000
"""How long encoding is tried for its time."""


def payloads_from(
    model: Model, reference: Reference, *, encoding: Encoding = "binary", rows: int = 1
) -> list[Payload]:
    """One request per sample, of that sample and the ``rows`` - 1 that follow it.

    Raises:
        UsageError: the model takes no batches, or fewer rows, or the samples differ in shape or
            cannot be encoded so.
    """
    _require_batch(model, reference, rows)
    tolerance = tolerance_of(model.computed.config)
    payloads = []
    count = len(reference.samples)
    for start in range(count):
        chosen = [(start + step) % count for step in range(rows)]
        answers = [Sample("", reference.answers[i]) for i in chosen]
        tensors = _tensors(model, [reference.samples[i] for i in chosen])
        expected = {name: Tensor.of(name, array) for name, array in stack_rows(answers).items()}
        body, length = _encoded(model.name, tensors, encoding)
        payloads.append(Payload(body, length, expected, encoding, tolerance))
    return payloads


def encode_ns(
    model: Model, reference: Reference, *, encoding: Encoding = "binary", rows: int = 1
) -> float:
    """Median time to encode one request, which no measured time holds, since it is done before.

    Raises:
        UsageError: as ``payloads_from``.
    """
    _require_batch(model, reference, rows)
    count = len(reference.samples)
    tensors = _tensors(model, [reference.samples[step % count] for step in range(rows)])
    taken: list[int] = []
    until_ns = time.perf_counter_ns() + _ENCODING_NS
    # The first is not counted: it finds nothing in the caches.
    while len(taken) < 2 or time.perf_counter_ns() < until_ns:
        begun_ns = time.perf_counter_ns()
        _encoded(model.name, tensors, encoding)
        taken.append(time.perf_counter_ns() - begun_ns)
    return median(taken[1:])


def _tensors(model: Model, samples: Sequence[Sample]) -> list[Tensor]:
    inputs = stack_rows(samples)
    return [Tensor.of(spec.name, inputs[spec.name]) for spec in model.config.inputs]


def _encoded(name: str, tensors: list[Tensor], encoding: Encoding) -> tuple[bytes, int | None]:
    """A request's body and the length of its JSON part, if binary data follows."""
    if encoding == "grpc":
        return encode_infer_request(name, tensors), None
    try:
        return encode_request(tensors, binary=encoding == "binary")
    except ProtocolError as error:
        raise UsageError(
            f"requests of model {name!r} cannot be JSON: {error}", hint="Leave --encoding out."
        ) from None


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
