"""KServe's model server: v2 with binary tensors."""

from __future__ import annotations

import logging

import kserve
from model import PORT, Model


class Served(kserve.Model):
    def load(self) -> bool:
        self.model = Model()
        self.ready = True
        return True

    async def predict(
        self,
        payload: kserve.InferRequest,
        headers: dict[str, str] | None = None,  # noqa: ARG002
    ) -> kserve.InferResponse:
        rows = self.model.run(payload.inputs[0].as_numpy())
        output = kserve.InferOutput(self.model.output, list(rows.shape), "FP32")
        output.set_data_from_numpy(rows, binary_data=True)
        return kserve.InferResponse(
            payload.id, self.name, [output], use_binary_outputs=payload.use_binary_outputs
        )


if __name__ == "__main__":
    served = Served("tiny")
    served.load()
    server = kserve.ModelServer(
        http_port=PORT, workers=1, enable_grpc=False, enable_latency_logging=False
    )
    logging.getLogger("uvicorn.access").disabled = True
    server.start([served])
