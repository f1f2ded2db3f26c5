"""mosec: a compiled HTTP front that passes raw bytes to Python workers (https://mosecorg.github.io)."""

from __future__ import annotations

from dataclasses import replace

from benchmarks.servers.base import PeerServer

UNBATCHED = PeerServer("mosec", "mosec", ("mosec==0.9.8",), "/inference")
# Waiting for company at most 1 ms, the shortest it takes; the default is 10.
BATCHED = replace(UNBATCHED, name="mosec, batches of 32", batch=32)
