"""Dynamic batching: requests wait in one queue, instances take as many as belong together.

``queue`` decides, and is pure; ``instances`` runs what leaves it, one thread per instance;
``batcher`` joins the two on an event loop.
"""

from __future__ import annotations

from serving.batching.batcher import Batcher
from serving.batching.queue import (
    CancelledError,
    ExpiredError,
    Outcome,
    Pending,
    QueueFullError,
    RefusedError,
    RequestQueue,
)

__all__ = [
    "Batcher",
    "CancelledError",
    "ExpiredError",
    "Outcome",
    "Pending",
    "QueueFullError",
    "RefusedError",
    "RequestQueue",
]
