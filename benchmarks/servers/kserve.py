"""KServe's model server (https://kserve.github.io/website): v2 with binary tensors, one worker.

It does not batch: in a cluster a container beside it does. It listens on every interface and has no
option against that. Its access log is switched off here.
"""

from __future__ import annotations

from benchmarks.servers.base import V2_BINARY, PeerServer

PEER = PeerServer("KServe", "kserve", ("kserve==0.21.0",), "/v2/models/tiny/infer", V2_BINARY)
