"""A Python-based Triton backend that serves ``backend: "onnxruntime"`` models.

Triton loads a copy of this file in its Python stub, which has NumPy 1 and ONNX Runtime and
nothing of this project. Requests that Triton hands over together are joined into one run.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import triton_python_backend_utils as pb_utils  # type: ignore[import-not-found]

_PROVIDER = "CPUExecutionProvider"
Arrays = Mapping[str, Any]


class TritonPythonModel:
    def initialize(self, args: Mapping[str, str]) -> None:
        """Open the session of one instance; raises what Triton then reports as the reason."""
        config = json.loads(args["model_config"])
        if not np.__version__.startswith("1."):
            raise pb_utils.TritonModelException(
                f"NumPy {np.__version__}: this stub gives wrong data with NumPy 2"
            )
        if args["model_instance_kind"] != "CPU":
            raise pb_utils.TritonModelException(
                f"instance kind {args['model_instance_kind']}: this backend serves KIND_CPU only"
            )
        file = config.get("default_model_filename") or "model.onnx"
        path = Path(args["model_repository"]) / args["model_version"] / file
        self._session = open_session(path, config.get("parameters", {}))
        self._inputs = [item["name"] for item in config["input"]]
        self._outputs = [item["name"] for item in config["output"]]
        self._joins = int(config.get("max_batch_size", 0)) > 0

    def execute(self, requests: Sequence[Any]) -> list[Any]:
        """One response for each request, in order."""
        feeds: list[Arrays] = []
        groups: dict[object, list[int]] = {}
        for index, request in enumerate(requests):
            feed = {
                name: pb_utils.get_input_tensor_by_name(request, name).as_numpy()
                for name in self._inputs
            }
            feeds.append(feed)
            row_shapes = tuple(array.shape[1:] for array in feed.values())
            groups.setdefault(row_shapes if self._joins else index, []).append(index)
        responses: dict[int, Any] = {}
        for members in groups.values():
            answers = self._answer([feeds[index] for index in members])
            responses.update(zip(members, answers, strict=True))
        return [responses[index] for index in range(len(requests))]

    def _answer(self, feeds: Sequence[Arrays]) -> list[Any]:
        """Run the feeds together; when that fails, each alone, so that one cannot spoil others."""
        try:
            results = self._run_joined(feeds) if len(feeds) > 1 else [self._run(feeds[0])]
        except Exception as error:  # noqa: BLE001, RUF100  (each kind is the request's own answer)
            if len(feeds) > 1:
                return [response for feed in feeds for response in self._answer([feed])]
            return [pb_utils.InferenceResponse([], pb_utils.TritonError(str(error)))]
        return [
            pb_utils.InferenceResponse(
                [pb_utils.Tensor(name, array) for name, array in result.items()]
            )
            for result in results
        ]

    def _run(self, feed: Arrays) -> Arrays:
        return dict(zip(self._outputs, self._session.run(self._outputs, feed), strict=True))

    def _run_joined(self, feeds: Sequence[Arrays]) -> list[Arrays]:
        joined = {name: np.concatenate([feed[name] for feed in feeds]) for name in self._inputs}
        rows = [len(feed[self._inputs[0]]) for feed in feeds]
        ends = np.cumsum(rows)
        result = self._run(joined)
        for name, array in result.items():
            if len(array) != ends[-1]:
                raise ValueError(f"output {name!r} has {len(array)} rows for {ends[-1]} given")
        return [
            {name: array[end - count : end] for name, array in result.items()}
            for count, end in zip(rows, ends, strict=True)
        ]


def open_session(path: Path, parameters: Mapping[str, Any]) -> onnxruntime.InferenceSession:
    """A session on the CPU with the configuration's thread counts.

    Raises:
        RuntimeError: ONNX Runtime took another provider.
    """
    options = onnxruntime.SessionOptions()
    options.execution_mode = onnxruntime.ExecutionMode.ORT_SEQUENTIAL
    options.intra_op_num_threads = _threads(parameters, "intra_op_thread_count")
    options.inter_op_num_threads = _threads(parameters, "inter_op_thread_count")
    session = onnxruntime.InferenceSession(str(path), options, providers=[_PROVIDER])
    session.disable_fallback()
    if session.get_providers() != [_PROVIDER]:
        raise RuntimeError(f"asked for {_PROVIDER}, got {session.get_providers()}")
    return session


def _threads(parameters: Mapping[str, Any], key: str) -> int:
    return int(parameters.get(key, {}).get("string_value", 1))
