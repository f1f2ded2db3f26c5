"""Open Inference Protocol v2 over gRPC: the messages of an inference, as bytes both ways.

The schema is ``service_pb2`` of ``tritonclient``; tensors travel in ``raw_*_contents``, which hold
what the binary extension of HTTP holds (https://github.com/kserve/open-inference-protocol).
"""

from __future__ import annotations

from collections.abc import Sequence

from google.protobuf.message import DecodeError
from tritonclient.grpc import service_pb2

from serving.protocol.tensor import ProtocolError, Tensor, from_binary, to_binary

INFER_METHOD = "/inference.GRPCInferenceService/ModelInfer"


def encode_infer_request(model_name: str, inputs: Sequence[Tensor]) -> bytes:
    """A serialized ``ModelInferRequest`` for all outputs."""
    message = service_pb2.ModelInferRequest(model_name=model_name)
    for tensor in inputs:
        message.inputs.add(name=tensor.name, datatype=tensor.datatype, shape=tensor.array.shape)
        message.raw_input_contents.append(bytes(to_binary(tensor)))
    return bytes(message.SerializeToString())


def decode_infer_response(body: bytes) -> dict[str, Tensor]:
    """The outputs of a serialized ``ModelInferResponse``, by name.

    Raises:
        ProtocolError: it is none, or its tensors do not fit their bytes.
    """
    try:
        message = service_pb2.ModelInferResponse.FromString(body)
    except DecodeError as error:
        raise ProtocolError(f"this is no ModelInferResponse: {error}") from None
    if len(message.outputs) != len(message.raw_output_contents):
        raise ProtocolError("the response holds no raw tensor for some output")
    tensors = {}
    for output, raw in zip(message.outputs, message.raw_output_contents, strict=True):
        shape, label = tuple(output.shape), f"output {output.name!r}"
        array = from_binary(memoryview(raw), label, output.datatype, shape)
        tensors[output.name] = Tensor(output.name, output.datatype, array.reshape(shape))
    return tensors
