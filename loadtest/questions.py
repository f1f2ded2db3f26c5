"""What one model is asked, what it must answer, and what asking costs by itself."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from loadtest.calibration import floor_for
from loadtest.payload import Payload
from loadtest.prepare import encode_ns, payloads_from
from loadtest.results import Settings
from loadtest.runner import Fleet
from serving.models.repository import Model
from serving.parity import Reference, reference_for


@dataclass(frozen=True)
class Questions:
    """Of one model in one run.

    Attributes:
        first: what a fresh server is asked, over HTTP whatever the run's own wire is.
        encode_ns: to encode one request, which is done beforehand.
        floor_ms: what one user's request takes on the null server, ``None`` where unknown.
    """

    reference: Reference
    payloads: Sequence[Payload]
    first: Payload
    encode_ns: float
    floor_ms: float | None


def questions_of(model: Model, settings: Settings, fleet: Fleet) -> Questions:
    """Raises UsageError when the model takes no requests of these settings."""
    reference = reference_for(model)
    encoding, rows = settings.encoding, settings.batch_size
    return Questions(
        reference,
        payloads_from(model, reference, encoding=encoding, rows=rows),
        payloads_from(model, reference)[0],
        encode_ns(model, reference, encoding=encoding, rows=rows),
        floor_for(model, settings, fleet),
    )
