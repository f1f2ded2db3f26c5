"""Arrays as the protocol has them, into ONNX Runtime and back.

They differ in two datatypes. ONNX Runtime's strings are ``str``, the protocol's are ``bytes``; and
arrays of BF16 pass only as ``OrtValue``, never through ``InferenceSession.run``. What a model needs
is decided once, so that a model with neither pays for neither.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import onnxruntime

from serving.errors import ModelError
from serving.models.config import ModelConfig
from serving.protocol import NUMPY_TYPES, Array, ProtocolError

Call = Callable[[Mapping[str, Array]], Sequence[Array]]
"""From the arrays of all inputs, by name, to those of all outputs in the configuration's order."""

_ONNX_BF16 = 16
_decode = np.frompyfunc(bytes.decode, 1, 1)
_encode = np.frompyfunc(str.encode, 1, 1)


def bind(
    runtime: onnxruntime.InferenceSession, config: ModelConfig, options: onnxruntime.RunOptions
) -> Call:
    """The leanest call of ``runtime`` that carries every datatype of the model.

    The call raises ProtocolError when an element of a BYTES input is not UTF-8.

    Raises:
        ModelError: the model takes text beside BF16, and no ``OrtValue`` can be made of text.
    """
    names = [spec.name for spec in config.outputs]
    kinds = {spec.datatype for spec in (*config.inputs, *config.outputs)}
    if "BF16" in kinds and any(spec.datatype == "BYTES" for spec in config.inputs):
        raise ModelError(
            f"model {config.name!r} takes BYTES beside BF16, which ONNX Runtime has no call for",
            hint="Let it take token ids, or cast BF16 to FP32 inside the graph.",
        )
    call: Call
    if "BF16" in kinds:
        call = _through_values(runtime, names, options)
    else:
        call = lambda inputs: runtime.run(names, dict(inputs), options)  # noqa: E731
    return _through_text(call, config) if "BYTES" in kinds else call


def _through_text(call: Call, config: ModelConfig) -> Call:
    given = [spec.name for spec in config.inputs if spec.datatype == "BYTES"]
    answered = [at for at, spec in enumerate(config.outputs) if spec.datatype == "BYTES"]

    def run(inputs: Mapping[str, Array]) -> Sequence[Array]:
        outputs = list(call({**inputs, **{name: _as_text(name, inputs[name]) for name in given}}))
        for at in answered:
            outputs[at] = np.asarray(_encode(outputs[at]), dtype=np.object_)
        return outputs

    return run


def _as_text(name: str, array: Array) -> Array:
    try:
        # asarray: of an array without axes only the element comes back.
        return np.asarray(_decode(array), dtype=np.object_)
    except UnicodeDecodeError as error:
        raise ProtocolError(
            f"input {name!r}: ONNX Runtime takes text in UTF-8, and an element is not: {error}"
        ) from None


def _through_values(
    runtime: onnxruntime.InferenceSession, names: list[str], options: onnxruntime.RunOptions
) -> Call:
    def run(inputs: Mapping[str, Array]) -> Sequence[Array]:
        values = {name: _as_value(array) for name, array in inputs.items()}
        return [_as_array(value) for value in runtime.run_with_ort_values(names, values, options)]

    return run


def _as_value(array: Array) -> onnxruntime.OrtValue:
    if array.dtype != NUMPY_TYPES["BF16"]:
        return onnxruntime.OrtValue.ortvalue_from_numpy(array)
    bits = np.ascontiguousarray(array).view(np.uint16)
    return onnxruntime.OrtValue.ortvalue_from_numpy_with_onnx_type(bits, _ONNX_BF16)


def _as_array(value: onnxruntime.OrtValue) -> Array:
    if value.element_type() != _ONNX_BF16:
        array: Array = value.numpy()
        return array
    # No numpy type of its own stands behind it, so the bytes are copied out.
    bits = ctypes.string_at(value.data_ptr(), value.tensor_size_in_bytes())
    return np.frombuffer(bits, NUMPY_TYPES["BF16"]).reshape(value.shape())
