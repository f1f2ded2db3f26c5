"""MLServer: v2 as JSON, in its own process."""

from __future__ import annotations

import asyncio

from mlserver import MLModel, MLServer, ModelSettings, Settings
from mlserver.codecs import NumpyCodec
from mlserver.types import InferenceRequest, InferenceResponse
from model import PORT, Model


class Served(MLModel):
    async def load(self) -> bool:
        self.session = Model()
        return True

    async def predict(self, payload: InferenceRequest) -> InferenceResponse:
        rows = self.session.run(NumpyCodec.decode_input(payload.inputs[0]))
        output = NumpyCodec.encode_output(self.session.output, rows)
        return InferenceResponse(model_name=self.name, outputs=[output])


async def serve() -> None:
    settings = Settings(
        host="127.0.0.1",
        http_port=PORT,
        parallel_workers=0,
        debug=False,
        gzip_enabled=False,
        metrics_endpoint=None,
        load_models_at_startup=False,
    )
    await MLServer(settings).start([ModelSettings(name="tiny", implementation=Served)])


if __name__ == "__main__":
    asyncio.run(serve())
