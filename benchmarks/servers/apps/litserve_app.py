"""LitServe: raw bytes in and out, batches of PEER_BATCH."""

from typing import Annotated

import litserve
from fastapi import Body, Response
from model import BATCH, PORT, Model

# LitServe reads this annotation as it stands, so annotations are not postponed in this file.
Raw = Annotated[bytes, Body(media_type="application/octet-stream")]


class Api(litserve.LitAPI):
    def setup(self, device: str) -> None:  # noqa: ARG002
        self.model = Model()

    def decode_request(self, request: Raw) -> bytes:
        return request

    def batch(self, inputs: list[bytes]) -> list[bytes]:
        return inputs

    def predict(self, x: list[bytes]) -> list[bytes]:
        return self.model.answer(x)

    def unbatch(self, output: list[bytes]) -> list[bytes]:
        return output

    def encode_response(self, output: bytes) -> Response:
        return Response(output, media_type="application/octet-stream")


if __name__ == "__main__":
    api = Api(max_batch_size=BATCH, batch_timeout=0.005)
    server = litserve.LitServer(api, accelerator="cpu", fast_queue=True)
    server.run("127.0.0.1", PORT, log_level="warning", generate_client_file=False)
