"""LitServe (https://lightning.ai/docs/litserve): FastAPI and a worker process behind a queue.

Joining up to 32 with its ``fast_queue`` was fastest here: above one at a time, and above the same
without a time to wait.
"""

from __future__ import annotations

from benchmarks.servers.base import PeerServer

PEER = PeerServer("LitServe", "litserve", ("litserve==0.2.19",), "/predict", batch=32)
