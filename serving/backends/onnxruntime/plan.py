"""What a request's JSON header comes to for one model version: parsed and checked once.

Clients repeat the same header with every request, so a plan is remembered under its bytes. What is
left to do for each request is to look at its tensors' bytes.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import orjson

from serving.backends.onnxruntime.shared_memory import SharedMemory
from serving.compression import BodyTooLargeError
from serving.models.config import ModelConfig
from serving.protocol import (
    HEADER_LENGTH,
    NUMPY_TYPES,
    Array,
    InferHeader,
    OutputRequest,
    ProtocolError,
    Tensor,
    decode_tensors,
    describe_response,
    describe_tensor,
    encode_response,
    parse_header,
    wanted_outputs,
)
from serving.validation import check_values, validate_described

_REMEMBERED = 256
_REMEMBERED_BYTES = 4096
_COPIED_BYTES = 65_536
_AS_THEY_ARE = frozenset(NUMPY_TYPES) - {"BOOL", "BYTES"}


@dataclass(frozen=True)
class _View:
    name: str
    dtype: np.dtype[np.generic]
    shape: tuple[int, ...]
    count: int
    byte_size: int


@dataclass(frozen=True)
class Plan:
    """A header and what follows from it.

    Attributes:
        rows: of the batch that the request is.
        shapes: equal for requests that may be joined.
        views: the inputs as views of the binary part; empty when that is not all there is to do.
        plain_outputs: the wanted outputs when all travel as binary data of plain numbers.
        replies: header lines and JSON part of such a reply, by the outputs' shapes.
    """

    header: InferHeader
    rows: int
    shapes: Hashable
    views: tuple[_View, ...]
    view_bytes: int
    wanted: tuple[OutputRequest, ...]
    plain_outputs: tuple[str, ...]
    replies: dict[Hashable, tuple[bytes, bytes]] = field(default_factory=dict)


class Planner:
    """Makes plans for one model version and applies them.

    Args:
        element_limit: values that one tensor may have.
    """

    def __init__(self, config: ModelConfig, version: int, element_limit: int) -> None:
        self._config = config
        self._version = version
        self._element_limit = element_limit
        self._datatypes = {spec.name: spec.datatype for spec in config.outputs}
        self._plans: dict[bytes | InferHeader, Plan] = {}

    def plan(self, text: bytes, *, with_binary: bool) -> Plan:
        """The plan for a request whose JSON part is ``text``.

        Raises:
            ProtocolError: the request does not fit the protocol or the model.
        """
        plan = self._plans.get(text)
        if plan is None:
            plan = self._plan(parse_header(text, with_binary=with_binary))
            if len(text) <= _REMEMBERED_BYTES:
                self._remember(text, plan)
        return plan

    def plan_for(self, header: InferHeader) -> Plan:
        """The plan for a header without JSON values, which came some other way.

        Raises:
            ProtocolError: it does not fit the model.
        """
        plan = self._plans.get(header)
        if plan is None:
            plan = self._plan(header)
            if len(repr(header)) <= _REMEMBERED_BYTES:
                self._remember(header, plan)
        return plan

    def _remember(self, key: bytes | InferHeader, plan: Plan) -> None:
        if len(self._plans) >= _REMEMBERED:
            self._plans.clear()
        self._plans[key] = plan

    def _plan(self, header: InferHeader) -> Plan:
        rows = validate_described(self._config, header.inputs)
        # Only now: the product of a million lengths takes minutes.
        for tensor in header.inputs:
            if math.prod(tensor.shape) > self._element_limit:
                raise BodyTooLargeError(
                    f"input {tensor.name!r}: shape {list(tensor.shape)} has more values than the "
                    f"limit of {self._element_limit}"
                )
        wanted = wanted_outputs(header, self._datatypes)
        plain = all(
            output.binary and not output.region and self._datatypes[output.name] in _AS_THEY_ARE
            for output in wanted
        )
        views = _views(header)
        return Plan(
            header=header,
            rows=rows,
            shapes=tuple(sorted((tensor.name, tensor.shape[1:]) for tensor in header.inputs)),
            views=views,
            view_bytes=sum(view.byte_size for view in views),
            wanted=wanted,
            plain_outputs=tuple(output.name for output in wanted) if plain else (),
        )

    def inputs(
        self, plan: Plan, body: bytes | memoryview, start: int, shared: SharedMemory
    ) -> dict[str, Array]:
        """Input name to array; ``body`` holds the binary part from ``start`` on.

        Raises:
            ProtocolError: the bytes do not fit, or a value is not allowed.
        """
        if plan.views:
            arrays = _view_all(plan.views, plan.view_bytes, body, start)
        else:
            blob = memoryview(body)[start:]
            tensors = decode_tensors(plan.header.inputs, blob, "input", shared.read)
            arrays = {tensor.name: tensor.array for tensor in tensors}
        if self._config.checks:
            check_values(self._config, arrays)
        return arrays

    def inputs_of(
        self, plan: Plan, blobs: Sequence[bytes], shared: SharedMemory
    ) -> dict[str, Array]:
        """Input name to array, from one piece of bytes for each input that is not shared.

        Raises:
            ProtocolError: as ``inputs``.
        """
        return self.inputs(plan, blobs[0] if len(blobs) == 1 else b"".join(blobs), 0, shared)

    def tensor(self, name: str, outputs: Mapping[str, Array]) -> Tensor:
        """The output called ``name``."""
        return Tensor(name, self._datatypes[name], outputs[name])

    def reply(
        self, plan: Plan, outputs: Mapping[str, Array], shared: SharedMemory
    ) -> tuple[bytes, list[bytes | memoryview]]:
        """Header lines and body parts of the response.

        Raises:
            ProtocolError: an output cannot travel as it was asked for.
        """
        if not plan.plain_outputs:
            return self._composed(plan, outputs, shared)
        arrays = [outputs[name] for name in plan.plain_outputs]
        key = tuple([array.shape for array in arrays])
        known = plan.replies.get(key)
        if known is None:
            if len(plan.replies) >= _REMEMBERED:
                plan.replies.clear()
            known = plan.replies[key] = self._prefix(plan, arrays)
        lines, text = known
        return lines, [text, *map(_bytes_of, arrays)]

    def _prefix(self, plan: Plan, arrays: Sequence[Array]) -> tuple[bytes, bytes]:
        header = describe_response(self._config.name, self._version, plan.header)
        for name, array in zip(plan.plain_outputs, arrays, strict=True):
            describe_tensor(Tensor(name, self._datatypes[name], array), True, header["outputs"])
        text = orjson.dumps(header)
        return _lines(len(text), len(text) + sum(array.nbytes for array in arrays)), text

    def _composed(
        self, plan: Plan, outputs: Mapping[str, Array], shared: SharedMemory
    ) -> tuple[bytes, list[bytes | memoryview]]:
        tensors = [self.tensor(output.name, outputs) for output in plan.wanted]
        body, length = encode_response(
            self._config.name, self._version, plan.header, tensors, shared.write
        )
        return _lines(length, len(body)), [body]


def _lines(json_length: int | None, length: int) -> bytes:
    """Header lines; a body that is all JSON has no ``json_length``."""
    if json_length is None:
        return b"content-type: application/json\r\ncontent-length: %d\r\n" % length
    return b"content-type: application/octet-stream\r\n%s: %d\r\ncontent-length: %d\r\n" % (
        HEADER_LENGTH.lower().encode(),
        json_length,
        length,
    )


def _views(header: InferHeader) -> tuple[_View, ...]:
    """Empty unless every input is binary data that needs no look at its values."""
    views = []
    for tensor in header.inputs:
        if tensor.binary_size is None or tensor.datatype not in _AS_THEY_ARE:
            return ()
        dtype = np.dtype(NUMPY_TYPES[tensor.datatype])
        count = math.prod(tensor.shape)
        if tensor.binary_size != count * dtype.itemsize:
            raise ProtocolError(
                f"input {tensor.name!r}: shape {list(tensor.shape)} of {tensor.datatype} needs "
                f"{count * dtype.itemsize} bytes, binary_data_size is {tensor.binary_size}"
            )
        if not count:
            return ()
        views.append(_View(tensor.name, dtype, tensor.shape, count, tensor.binary_size))
    return tuple(views)


def _view_all(
    views: Sequence[_View], byte_size: int, body: bytes | memoryview, at: int
) -> dict[str, Array]:
    arrays = {}
    if len(body) - at != byte_size:
        raise ProtocolError(
            f"the inputs' binary_data_size comes to {byte_size} bytes, {len(body) - at} came"
        )
    for view in views:
        array: Array = np.frombuffer(body, view.dtype, view.count, at)
        arrays[view.name] = array.reshape(view.shape)
        at += view.byte_size
    return arrays


def _bytes_of(array: Array) -> bytes | memoryview:
    """Small outputs are copied, which is quicker than the views that spare large ones a copy."""
    if array.nbytes <= _COPIED_BYTES:
        return array.tobytes()
    contiguous: Array = np.ascontiguousarray(array)
    return contiguous.reshape(-1).view(np.uint8).data
