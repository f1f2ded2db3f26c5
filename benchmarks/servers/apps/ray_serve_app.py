"""Ray Serve: raw bytes in and out, one replica, batches of PEER_BATCH."""

from __future__ import annotations

import signal
import tempfile

import ray
from model import BATCH, PORT, Model
from ray import serve
from starlette.requests import Request
from starlette.responses import Response


@serve.deployment(num_replicas=1, max_ongoing_requests=256, ray_actor_options={"num_cpus": 0})
class Served:
    def __init__(self) -> None:
        self.model = Model()

    @serve.batch(max_batch_size=BATCH, batch_wait_timeout_s=0.001)
    async def answer(self, bodies: list[bytes]) -> list[bytes]:
        return self.model.answer(bodies)

    async def __call__(self, request: Request) -> Response:
        return Response(await self.answer(await request.body()))


if __name__ == "__main__":
    ray.init(num_cpus=1, include_dashboard=False, _temp_dir=tempfile.gettempdir())
    serve.start(http_options={"host": "127.0.0.1", "port": PORT, "access_log": False})
    serve.run(Served.bind())
    signal.sigwait({signal.SIGTERM})
    serve.shutdown()
    ray.shutdown()
