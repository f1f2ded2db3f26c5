"""MLServer (https://mlserver.readthedocs.io): v2 as JSON, since its HTTP takes no binary tensors.

In the server's own process (``parallel_workers`` 0), as its manual says for one core; its adaptive
batching was no faster here.
"""

from __future__ import annotations

from benchmarks.servers.base import V2_JSON, PeerServer

PEER = PeerServer("MLServer", "mlserver", ("mlserver==1.7.1",), "/v2/models/tiny/infer", V2_JSON)
