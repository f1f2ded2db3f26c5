"""Ray Serve (https://docs.ray.io/en/latest/serve): one replica, raw bytes, joined up to 32.

With its HAProxy front and the throughput settings it was some eight times as fast here as with its
Python proxy.
"""

from __future__ import annotations

from benchmarks.servers.base import PeerServer

PEER = PeerServer(
    "Ray Serve",
    "ray_serve",
    ("ray[serve]==2.60.0",),
    "/",
    batch=32,
    environment={"RAY_SERVE_ENABLE_HA_PROXY": "1", "RAY_SERVE_THROUGHPUT_OPTIMIZED": "1"},
)
