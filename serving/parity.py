"""Equal before fast: a server's answers against an in-process session, alone and batched."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from http.client import HTTPException

import numpy as np
import tritonclient.grpc
import tritonclient.http
from tritonclient.utils import InferenceServerException

from serving.models.repository import Model
from serving.models.samples import Sample, samples_for, stack_rows
from serving.models.variants.parameters import tolerance_of
from serving.pipelines import open_runner
from serving.protocol import DATATYPES, Array
from serving.readiness import OPEN, Access, Client, client_for
from serving.tolerance import Tolerance


@dataclass(frozen=True)
class Reference:
    """Samples and what the model answers to each, one row at a time."""

    samples: tuple[Sample, ...]
    answers: tuple[Mapping[str, Array], ...]


@dataclass(frozen=True)
class ParityResult:
    """Attributes: ``rows`` compared, and the ``largest_difference`` (absolute) among them."""

    passed: bool
    rows: int
    largest_difference: float | None
    tolerance: Tolerance
    detail: str = ""


def reference_for(model: Model) -> Reference:
    """Answers of an ONNX Runtime session in this process, each sample alone.

    Of a pipeline, its front half runs before.
    """
    runner = open_runner(model)
    samples = samples_for(model)
    return Reference(samples, tuple(runner.run(sample.inputs) for sample in samples))


def check_parity(
    url: str,
    model: Model,
    reference: Reference,
    access: Access = OPEN,
    tolerance: Tolerance | None = None,
) -> ParityResult:
    """Ask the server for every sample alone, then for batches, and compare.

    The client is ``tritonclient``, which shares no code with our codec.
    """
    tolerance = tolerance or tolerance_of(model.computed.config)
    rows, largest = 0, 0.0
    connection = client_for(url, access)
    try:
        for indices in _groups(model, reference):
            label = ", ".join(reference.samples[i].name for i in indices)
            try:
                samples = [reference.samples[i] for i in indices]
                answer = _ask(connection, model, samples, access)
            except (InferenceServerException, OSError, HTTPException) as error:
                detail = f"{label}: the server answered with an error: {error}"
                return ParityResult(False, rows, None, tolerance, detail)
            for position, index in enumerate(indices):
                difference, fault = _compare(
                    answer, reference.answers[index], position, len(indices), tolerance
                )
                largest = max(largest, difference)
                rows += 1
                if fault:
                    how = "alone" if len(indices) == 1 else f"in a batch of {len(indices)}"
                    detail = f"{reference.samples[index].name} {how}: {fault}"
                    return ParityResult(False, rows, largest, tolerance, detail)
    finally:
        connection.close()
    return ParityResult(True, rows, largest, tolerance)


def _groups(model: Model, reference: Reference) -> list[list[int]]:
    """Each sample alone, then samples of equal shapes together up to the batch limit."""
    groups = [[index] for index in range(len(reference.samples))]
    if not model.config.batched:
        return groups
    by_shape: dict[tuple[tuple[int, ...], ...], list[int]] = {}
    for index, sample in enumerate(reference.samples):
        shapes = tuple(array.shape for array in sample.inputs.values())
        by_shape.setdefault(shapes, []).append(index)
    limit = model.config.max_batch_size
    for members in by_shape.values():
        chunks = (members[at : at + limit] for at in range(0, len(members), limit))
        groups.extend(chunk for chunk in chunks if len(chunk) > 1)
    return groups


def _ask(
    connection: Client, model: Model, samples: Sequence[Sample], access: Access
) -> dict[str, Array | None]:
    grpc = isinstance(connection, tritonclient.grpc.InferenceServerClient)
    client = tritonclient.grpc if grpc else tritonclient.http
    inputs = []
    for name, array in stack_rows(samples).items():
        tensor = client.InferInput(name, list(array.shape), DATATYPES[array.dtype])
        tensor.set_data_from_numpy(array)
        inputs.append(tensor)
    names = [spec.name for spec in model.config.outputs]
    outputs = [client.InferRequestedOutput(name) for name in names]
    answer = connection.infer(
        model.name, inputs, outputs=outputs, headers=dict(access.headers) or None
    )
    return {name: answer.as_numpy(name) for name in names}


def _compare(
    answer: Mapping[str, Array | None],
    expected: Mapping[str, Array],
    position: int,
    rows: int,
    tolerance: Tolerance,
) -> tuple[float, str]:
    """Largest absolute difference of one row, and what is wrong with it (empty when right)."""
    largest = 0.0
    for name, wanted in expected.items():
        got = answer[name]
        if got is None:
            return largest, f"output {name!r} is missing"
        if rows > 1:
            got = got[position : position + 1]
        if got.shape != wanted.shape or got.dtype != wanted.dtype:
            found = f"{got.dtype} {list(got.shape)}"
            return largest, f"output {name!r} is {found}, not {wanted.dtype} {list(wanted.shape)}"
        if wanted.dtype.kind != "f":
            if not np.array_equal(got, wanted):
                return largest, f"output {name!r} differs"
            continue
        difference = float(np.max(np.abs(got - wanted), initial=0.0))
        largest = max(largest, difference)
        if not np.allclose(
            got, wanted, rtol=tolerance.relative, atol=tolerance.absolute, equal_nan=True
        ):
            return largest, f"output {name!r} differs by {difference:.3g}"
    return largest, ""
