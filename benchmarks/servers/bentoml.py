"""BentoML (https://docs.bentoml.com): an array as JSON, joined up to 32.

Its server takes no raw tensors: pickled ones are refused by a public endpoint, files go through the
disk. A coroutine with adaptive batching, without access log, was fastest here.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

import numpy as np

from benchmarks.servers.base import PeerServer, Wire
from serving.protocol import Array


def _encode(_: str, row: Array) -> tuple[bytes, Mapping[str, str]]:
    return json.dumps({"rows": row.tolist()}).encode(), {"Content-Type": "application/json"}


def _decode(body: bytes, _: str | None) -> Array:
    return np.array(json.loads(body), np.float32)


PEER = PeerServer(
    "BentoML",
    "bentoml",
    ("bentoml==1.4.40",),
    "/infer",
    Wire("JSON", _encode, _decode),
    batch=32,
    environment={"BENTOML_DO_NOT_TRACK": "True"},
)
