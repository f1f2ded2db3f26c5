"""Every way a request can end but well: its outcome class and its HTTP status."""

from __future__ import annotations

from dataclasses import dataclass

from serving.batching import CancelledError, ExpiredError, RefusedError
from serving.compression import BodyTooLargeError
from serving.errors import ModelError
from serving.protocol import ProtocolError

_TEXT_LIMIT = 600
"""Characters of a reason. A client may have sent megabytes that it quotes; gRPC's clients take
8 KiB, in which one character needs up to 12 bytes."""


class UnknownModelError(Exception):
    """The request names a model, a version or a region that is not there."""


@dataclass(frozen=True)
class Fault:
    """Attributes: ``outcome`` is one of ``serving.statistics.OUTCOMES``."""

    outcome: str
    status: int
    text: str

    @property
    def again(self) -> bool:
        """Whether the client may send the same request again later."""
        return self.status == 503


_KINDS: tuple[tuple[tuple[type[Exception], ...], str, int], ...] = (
    ((UnknownModelError,), "client_fault", 404),
    ((BodyTooLargeError,), "client_fault", 413),
    ((ProtocolError, ModelError), "client_fault", 400),
    ((ExpiredError,), "expired", 503),
    ((RefusedError,), "refused", 503),
    ((CancelledError,), "cancelled", 503),
)


def fault_of(error: Exception) -> Fault:
    """What ``error`` means to the client."""
    for kinds, outcome, status in _KINDS:
        if isinstance(error, kinds):
            return Fault(outcome, status, _short(str(error)))
    return Fault("server_fault", 500, _short(f"inference failed: {error}"))


def _short(text: str) -> str:
    return text if len(text) <= _TEXT_LIMIT else f"{text[:_TEXT_LIMIT]}..."
