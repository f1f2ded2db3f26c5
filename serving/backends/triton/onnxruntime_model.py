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
from onnxruntime.capi.onnxruntime_pybind11_state import InvalidArgument
from onnxruntime.capi.onnxruntime_pybind11_state import OrtValue as NativeValue

_PROVIDER = "CPUExecutionProvider"
_BFLOAT16 = "TYPE_BF16"
_TEXT = "TYPE_STRING"
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
        self._inputs = {item["name"]: item["data_type"] for item in config["input"]}
        self._outputs = {item["name"]: item["data_type"] for item in config["output"]}
        datatypes = {*self._inputs.values(), *self._outputs.values()}
        self._by_value = _BFLOAT16 in datatypes
        if self._by_value and _TEXT in datatypes:
            raise pb_utils.TritonModelException(
                "BF16 beside BYTES: ONNX Runtime's Python interface takes them in different calls"
            )
        self._joins = int(config.get("max_batch_size", 0)) > 0 and not self._by_value

    def execute(self, requests: Sequence[Any]) -> list[Any]:
        """One response for each request, in order."""
        if self._by_value:
            return [self._answer_by_value(request) for request in requests]
        responses: dict[int, Any] = {}
        feeds: dict[int, Arrays] = {}
        groups: dict[object, list[int]] = {}
        for index, request in enumerate(requests):
            try:
                feeds[index] = self._feed(request)
            except UnicodeDecodeError as error:
                responses[index] = _fault(error)
                continue
            row_shapes = tuple(array.shape[1:] for array in feeds[index].values())
            groups.setdefault(row_shapes if self._joins else index, []).append(index)
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
            return [_fault(error)]
        return [
            pb_utils.InferenceResponse(
                [pb_utils.Tensor(name, array) for name, array in result.items()]
            )
            for result in results
        ]

    def _answer_by_value(self, request: Any) -> Any:
        """NumPy has no BF16: such tensors go to ONNX Runtime and back by DLPack, never joined."""
        try:
            feed = {
                name: _to_value(pb_utils.get_input_tensor_by_name(request, name), datatype)
                for name, datatype in self._inputs.items()
            }
            values = self._session.run_with_ort_values(list(self._outputs), feed)
        except Exception as error:  # noqa: BLE001, RUF100  (each kind is the request's own answer)
            return _fault(error)
        return pb_utils.InferenceResponse(
            [
                _to_tensor(name, value, datatype)
                for (name, datatype), value in zip(self._outputs.items(), values, strict=True)
            ]
        )

    def _feed(self, request: Any) -> Arrays:
        """Raises UnicodeDecodeError for a BYTES element that is not text, as ONNX strings are."""
        feed = {}
        for name, datatype in self._inputs.items():
            array = pb_utils.get_input_tensor_by_name(request, name).as_numpy()
            feed[name] = _to_text(array) if datatype == _TEXT else array
        return feed

    def _run(self, feed: Arrays) -> Arrays:
        arrays = self._session.run(list(self._outputs), feed)
        return dict(zip(self._outputs, arrays, strict=True))

    def _run_joined(self, feeds: Sequence[Arrays]) -> list[Arrays]:
        joined = {name: np.concatenate([feed[name] for feed in feeds]) for name in self._inputs}
        rows = [len(next(iter(feed.values()))) for feed in feeds]
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
    """A session on the CPU with the configuration's threads, execution mode and memory.

    Raises:
        RuntimeError: ONNX Runtime took another provider.
    """
    options = onnxruntime.SessionOptions()
    modes = onnxruntime.ExecutionMode
    parallel = _flag(parameters, "execution_mode", default="0")
    options.execution_mode = modes.ORT_PARALLEL if parallel else modes.ORT_SEQUENTIAL
    options.enable_cpu_mem_arena = _flag(parameters, "enable_mem_arena", default="1")
    options.enable_mem_pattern = _flag(parameters, "enable_mem_pattern", default="1")
    options.intra_op_num_threads = _threads(parameters, "intra_op_thread_count")
    options.inter_op_num_threads = _threads(parameters, "inter_op_thread_count")
    session = onnxruntime.InferenceSession(str(path), options, providers=[_PROVIDER])
    session.disable_fallback()
    if session.get_providers() != [_PROVIDER]:
        raise RuntimeError(f"asked for {_PROVIDER}, got {session.get_providers()}")
    return session


def _to_text(array: Any) -> Any:
    """ONNX Runtime would write ``bytes`` as their Python form, ``b'...'``."""
    text = np.empty(array.shape, dtype=np.object_)
    text.ravel()[:] = [element.decode() for element in array.ravel()]
    return text


def _to_value(tensor: Any, datatype: str) -> onnxruntime.OrtValue:
    if datatype == _BFLOAT16:
        return onnxruntime.OrtValue(NativeValue.from_dlpack(tensor.to_dlpack(), False))
    return onnxruntime.OrtValue.ortvalue_from_numpy(tensor.as_numpy())


def _to_tensor(name: str, value: onnxruntime.OrtValue, datatype: str) -> Any:
    if datatype == _BFLOAT16:
        return pb_utils.Tensor.from_dlpack(name, value._ortvalue.to_dlpack())  # noqa: SLF001
    return pb_utils.Tensor(name, value.numpy())


def _fault(error: Exception) -> Any:
    """A response that says whose fault it was; ONNX Runtime names a bad input as such."""
    code = pb_utils.TritonError.INTERNAL
    if isinstance(error, (InvalidArgument, UnicodeDecodeError)):
        code = pb_utils.TritonError.INVALID_ARG
    return pb_utils.InferenceResponse([], pb_utils.TritonError(str(error), code))


def _threads(parameters: Mapping[str, Any], key: str) -> int:
    return int(parameters.get(key, {}).get("string_value", 1))


def _flag(parameters: Mapping[str, Any], key: str, *, default: str) -> bool:
    return parameters.get(key, {}).get("string_value", default).lower() in ("1", "true")
