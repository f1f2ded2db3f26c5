"""mosec: a compiled front, raw bytes in and out, batches of PEER_BATCH."""

from __future__ import annotations

import sys

from model import BATCH, PORT, Model
from mosec import Server, Worker


class Unbatched(Worker):
    resp_mime_type = "application/octet-stream"

    def __init__(self) -> None:
        self.model = Model()

    def deserialize(self, data: bytes) -> bytes:
        return data

    def serialize(self, data: bytes) -> bytes:
        return data

    def forward(self, data: bytes) -> bytes:
        return self.model.answer([data])[0]


class Batched(Unbatched):
    def forward(self, data: list[bytes]) -> list[bytes]:
        return self.model.answer(data)


if __name__ == "__main__":
    sys.argv[1:] = ["--address", "127.0.0.1", "--port", str(PORT), "--log-level", "warning"]
    server = Server()
    server.append_worker(Batched if BATCH > 1 else Unbatched, max_batch_size=BATCH, max_wait_time=1)
    server.run()
