"""Triton's Python step of a front half: ``model.py`` in its version folder, beside ``picture.py``.

Triton loads it in its Python stub, which has NumPy 1 and Pillow and nothing of this project.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import triton_python_backend_utils as pb_utils  # type: ignore[import-not-found]

sys.path.insert(0, str(Path(__file__).parent))
from picture import FrontHalf, PictureError  # type: ignore[import-not-found]


class TritonPythonModel:
    def initialize(self, args: Mapping[str, str]) -> None:
        """Read the front half from the configuration; raises what Triton reports as the reason."""
        if not np.__version__.startswith("1."):
            raise pb_utils.TritonModelException(
                f"NumPy {np.__version__}: this stub gives wrong data with NumPy 2"
            )
        config = json.loads(args["model_config"])
        parameters = {key: value["string_value"] for key, value in config["parameters"].items()}
        self._input, self._output = config["input"][0]["name"], config["output"][0]["name"]
        dims = [int(length) for length in config["output"][0]["dims"]]
        self._front = FrontHalf.from_parameters(parameters, dims)

    def execute(self, requests: Sequence[Any]) -> list[Any]:
        """One response for each request, in order; a broken picture is its own request's fault."""
        return [self._answer(request) for request in requests]

    def _answer(self, request: Any) -> Any:
        rows = pb_utils.get_input_tensor_by_name(request, self._input).as_numpy()
        try:
            tensors = self._front.run(rows)
        except PictureError as error:
            fault = pb_utils.TritonError(str(error), pb_utils.TritonError.INVALID_ARG)
            return pb_utils.InferenceResponse([], fault)
        return pb_utils.InferenceResponse([pb_utils.Tensor(self._output, tensors)])
