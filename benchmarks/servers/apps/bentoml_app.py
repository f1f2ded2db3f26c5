"""BentoML: arrays as JSON, batches of PEER_BATCH."""

from pathlib import Path
from typing import Annotated

import bentoml
import numpy as np
from bentoml.validators import DType
from model import BATCH, PORT, Model

Rows = Annotated[np.ndarray, DType("float32")]


@bentoml.service(workers=1, logging={"access": {"enabled": False}})
class Served:
    def __init__(self) -> None:
        self.model = Model()

    @bentoml.api(batchable=True, max_batch_size=BATCH)
    async def infer(self, rows: Rows) -> Rows:
        return self.model.run(rows)


if __name__ == "__main__":
    folder = str(Path(__file__).parent)
    bentoml.serve(
        "bentoml_app:Served", host="127.0.0.1", port=PORT, working_dir=folder, blocking=True
    )
