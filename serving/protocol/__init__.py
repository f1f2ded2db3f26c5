"""Open Inference Protocol v2: JSON and the binary tensor extension of HTTP, and gRPC's messages.

Sources: the protocol's REST definition (https://github.com/kserve/open-inference-protocol) and
Triton's binary tensor data and system shared memory extensions. The codec is pure: bytes in,
frozen values out. Servers and the load generator share it.
"""

from __future__ import annotations

from serving.protocol.body import describe_tensor
from serving.protocol.header import (
    HEADER_LENGTH,
    InferHeader,
    OutputRequest,
    Region,
    TensorHeader,
    json_object,
    parse_header,
    parse_header_length,
    split_body,
)
from serving.protocol.request import (
    InferRequest,
    decode_request,
    decode_tensors,
    encode_request,
)
from serving.protocol.response import (
    decode_response,
    describe_response,
    encode_response,
    wanted_outputs,
)
from serving.protocol.tensor import (
    DATATYPES,
    NUMPY_TYPES,
    Array,
    ProtocolError,
    Tensor,
    from_binary,
    to_binary,
)

__all__ = [
    "DATATYPES",
    "HEADER_LENGTH",
    "NUMPY_TYPES",
    "Array",
    "InferHeader",
    "InferRequest",
    "OutputRequest",
    "ProtocolError",
    "Region",
    "Tensor",
    "TensorHeader",
    "decode_request",
    "decode_response",
    "decode_tensors",
    "describe_response",
    "describe_tensor",
    "encode_request",
    "encode_response",
    "from_binary",
    "json_object",
    "parse_header",
    "parse_header_length",
    "split_body",
    "to_binary",
    "wanted_outputs",
]
