"""A body from its JSON part and its binary parts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import orjson

from serving.protocol.json_data import to_json
from serving.protocol.tensor import Tensor, to_binary


def describe_tensor(tensor: Tensor, binary: bool, into: list[dict[str, Any]]) -> bytes | memoryview:
    """Append the tensor's JSON description to ``into`` and return its binary part."""
    item: dict[str, Any] = {
        "name": tensor.name,
        "datatype": tensor.datatype,
        "shape": list(tensor.array.shape),
    }
    into.append(item)
    if not binary:
        item["data"] = to_json(tensor)
        return b""
    blob = to_binary(tensor)
    item["parameters"] = {"binary_data_size": len(blob)}
    return blob


def join(header: dict[str, Any], blobs: Sequence[bytes | memoryview]) -> tuple[bytes, int | None]:
    """The body, and the length of its JSON part (``None`` when it is all JSON)."""
    text = orjson.dumps(header, option=orjson.OPT_SERIALIZE_NUMPY)
    if not any(isinstance(blob, memoryview) or blob for blob in blobs):
        return text, None
    return b"".join([text, *blobs]), len(text)
