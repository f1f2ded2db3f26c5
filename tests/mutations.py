"""Valid v2 requests, and what careless or hostile clients make of them."""

from __future__ import annotations

import copy
import gzip
import json
import struct
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from hypothesis import strategies as st

from serving.protocol import HEADER_LENGTH, NUMPY_TYPES

PACK: Mapping[str, Callable[[bytes], bytes]] = {
    "gzip": lambda body: gzip.compress(body, 1),
    "deflate": zlib.compress,
}


@dataclass
class Draft:
    """An inference over HTTP, still in parts.

    Attributes:
        header: the JSON part.
        blob: the binary part.
        fields: header fields beside the length of the JSON part.
    """

    model: str
    header: Any
    blob: bytes = b""
    fields: dict[str, str] = field(default_factory=dict)
    cuts: list[Callable[[bytes], bytes]] = field(default_factory=list)

    def wire(self) -> tuple[str, bytes, dict[str, str]]:
        """Path, body, header fields."""
        text = json.dumps(self.header).encode()
        fields = dict(self.fields)
        if self.blob:
            fields.setdefault(HEADER_LENGTH, str(len(text)))
        body = text + self.blob
        if fields.get("Content-Encoding") in PACK:
            body = PACK[fields["Content-Encoding"]](body)
        for cut in self.cuts:
            body = cut(body)
        return f"/v2/models/{self.model}/infer", body, fields


@st.composite
def drafts(draw: st.DrawFn) -> Draft:
    """Sum and difference of two INT32 [n, 3] inputs, each as JSON, flat or nested, or binary."""
    count = draw(st.integers(1, 3))
    inputs, blob = [], b""
    for name in ("a", "b"):
        values = draw(st.lists(st.integers(-(2**30), 2**30 - 1), min_size=3, max_size=3)) * count
        tensor: dict[str, Any] = {"name": name, "datatype": "INT32", "shape": [count, 3]}
        kind = draw(st.sampled_from(["flat", "nested", "binary"]))
        if kind == "binary":
            blob += struct.pack(f"<{len(values)}i", *values)
            tensor["parameters"] = {"binary_data_size": 4 * len(values)}
        else:
            tensor["data"] = values if kind == "flat" else [values[:3]] * count
        inputs.append(tensor)
    header: dict[str, Any] = {"inputs": inputs}
    if draw(st.booleans()):
        header["id"] = draw(st.text(max_size=5))
    if draw(st.booleans()):
        names = draw(st.permutations(["sum", "difference"]))
        binary = draw(st.booleans())
        header["outputs"] = [{"name": n, "parameters": {"binary_data": binary}} for n in names]
    fields = draw(st.sampled_from([{}, {"Content-Encoding": "gzip"}]))
    return Draft("arithmetic", header, blob, dict(fields))


@st.composite
def texts(draw: st.DrawFn) -> Draft:
    """BYTES [n] to model ``text``, as JSON or binary."""
    values = draw(st.lists(st.text(max_size=3), max_size=4))
    tensor: dict[str, Any] = {"name": "x", "datatype": "BYTES", "shape": [len(values)]}
    blob = b""
    if draw(st.booleans()):
        tensor["data"] = values
    else:
        coded = [value.encode() for value in values]
        blob = b"".join(struct.pack("<I", len(value)) + value for value in coded)
        tensor["parameters"] = {"binary_data_size": len(blob)}
    return Draft("text", {"inputs": [tensor]}, blob)


NUMBERS = st.sampled_from(
    [-1, 0, 1, 3, 4, 2**31 - 1, 2**31, 2**32, 2**63 - 1, 2**63, 2**64 - 1, 1.5, -0.0, 1e308]
)
JSON = st.recursive(
    st.one_of(
        st.none(), st.booleans(), NUMBERS, st.text(max_size=8), st.sampled_from([*NUMPY_TYPES])
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(
            st.sampled_from(["name", "shape", "data", "parameters", "binary_data_size", "x"]),
            inner,
            max_size=3,
        ),
    ),
    max_leaves=6,
)


EXTREMES: Mapping[str, st.SearchStrategy[Any]] = {
    "name": st.text(max_size=5),
    "datatype": st.sampled_from([*NUMPY_TYPES, "X"]),
    "shape": st.lists(NUMBERS, max_size=5).flatmap(lambda few: st.sampled_from([few, few * 50])),
    "data": st.lists(st.one_of(NUMBERS, st.text(max_size=2)), max_size=7),
    "parameters": st.one_of(
        st.fixed_dictionaries({"binary_data_size": NUMBERS}),
        st.fixed_dictionaries(
            {
                "shared_memory_region": st.sampled_from(["r", "ä", "", 7, None, []]),
                "shared_memory_byte_size": NUMBERS,
                "shared_memory_offset": NUMBERS,
            }
        ),
    ),
}


def places(value: Any) -> list[tuple[Any, Any]]:
    """Every container of ``value`` with every key of it."""
    keys = range(len(value)) if isinstance(value, list) else [*value]
    found = [(value, key) for key in keys]
    for key in keys:
        if isinstance(value[key], list | dict):
            found += places(value[key])
    return found


@st.composite
def structure(draw: st.DrawFn, draft: Draft) -> None:
    """Something in the JSON is replaced, removed, doubled or added."""
    where = places(draft.header)
    if not where:
        return
    container, key = draw(st.sampled_from(where))
    action = draw(st.sampled_from(["replace", "remove", "double", "add"]))
    if action == "replace":
        container[key] = draw(JSON)
    elif action == "remove":
        del container[key]
    elif action == "double" and isinstance(container, list):
        container.append(copy.deepcopy(container[key]))
    elif isinstance(container, dict):
        container[draw(st.text(max_size=5))] = draw(JSON)


@st.composite
def tensor_field(draw: st.DrawFn, draft: Draft) -> None:
    """A field of an input is gone, of another kind, or of an extreme value."""
    tensor = draw(st.sampled_from(tensors(draft)))
    key = draw(st.sampled_from([*EXTREMES]))
    kind = draw(st.sampled_from(["gone", "other", "extreme"]))
    if kind == "gone":
        tensor.pop(key, None)
    else:
        tensor[key] = draw(JSON if kind == "other" else EXTREMES[key])


@st.composite
def header_length(draw: st.DrawFn, draft: Draft) -> None:
    length = len(json.dumps(draft.header))
    near = st.integers(-2, 2).map(lambda by: str(length + by))
    far = st.sampled_from(["0", "", "-1", "1e3", "99999999999999999999", "0x10", "\xb9", "NaN"])
    draft.fields[HEADER_LENGTH] = draw(st.one_of(near, far))


@st.composite
def encoding(draw: st.DrawFn, draft: Draft) -> None:
    """A true one, an unknown one, or one that the body does not have."""
    kind = draw(st.sampled_from([*PACK, "br", "gzip, gzip", "identity", "GZIP", ""]))
    draft.fields["Content-Encoding"] = kind


@st.composite
def body_bytes(draw: st.DrawFn, draft: Draft) -> None:
    at, byte = draw(st.integers(0, 400)), draw(st.binary(min_size=1, max_size=3))
    action = draw(st.sampled_from(["flip", "cut", "insert", "append"]))

    def change(body: bytes) -> bytes:
        here = at % (len(body) or 1)
        after = {"flip": body[here + 1 :], "cut": b"", "insert": body[here:]}
        if action == "append":
            return body + byte
        return body[:here] + (b"" if action == "cut" else byte) + after[action]

    draft.cuts.append(change)


@st.composite
def target(draw: st.DrawFn, draft: Draft) -> None:
    draft.model = draw(
        st.sampled_from(["tiny", "text", "nobody", "arithmetic/versions/2", "..%2farithmetic"])
    )


MUTATIONS = (structure, tensor_field, tensor_field, header_length, encoding, body_bytes, target)


def tensors(draft: Draft) -> list[dict[str, Any]]:
    """What is left of the inputs; a stray one when that is nothing."""
    items = draft.header.get("inputs") if isinstance(draft.header, dict) else None
    found = [item for item in items if isinstance(item, dict)] if isinstance(items, list) else []
    return found or [{}]


@st.composite
def mutants(draw: st.DrawFn) -> Draft:
    """A valid request after one to three mutations."""
    draft = draw(st.one_of(drafts(), texts()))
    for _ in range(draw(st.integers(1, 3))):
        draw(draw(st.sampled_from(MUTATIONS))(draft))
    return draft
