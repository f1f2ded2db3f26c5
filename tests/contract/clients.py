"""NVIDIA's four clients, asked in one way: HTTP and gRPC, each blocking and with asyncio."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import numpy as np
import tritonclient.grpc
import tritonclient.grpc.aio
import tritonclient.http
import tritonclient.http.aio
from google.protobuf import json_format
from google.protobuf.message import Message
from tritonclient.grpc import service_pb2 as schema
from tritonclient.utils import InferenceServerException, np_to_triton_dtype

from serving.protocol import Array
from tests.contract.differences import Outcome
from tests.contract.served import Served

FLAVOURS: Mapping[str, Any] = {
    "http": tritonclient.http,
    "http.aio": tritonclient.http.aio,
    "grpc": tritonclient.grpc,
    "grpc.aio": tritonclient.grpc.aio,
}
_CLIENT_CODES = frozenset(
    f"StatusCode.{code}"
    for code in ("INVALID_ARGUMENT", "NOT_FOUND", "ALREADY_EXISTS", "FAILED_PRECONDITION")
)
Arrays = Mapping[str, Array]


@dataclass(frozen=True)
class Answer:
    """The reply to an inference; BYTES elements are ``bytes`` however they travelled."""

    id: str
    model_name: str
    model_version: str
    outputs: Arrays


@dataclass(frozen=True)
class Client:
    """One of the clients. Each call has a connection of its own.

    What a server says of itself comes back as the protocol's own messages: HTTP's JSON is read
    as the JSON form of gRPC's message, so that a field which is not in the protocol is an error.
    """

    served: Served
    flavour: str

    @property
    def is_grpc(self) -> bool:
        return self.flavour.startswith("grpc")

    def call(self, method: str, *args: Any, model: str = "", **named: Any) -> Any:
        """The client's ``method`` at the server that has ``model``."""

        async def ask() -> Any:
            async with self._open(model) as connection:
                return await getattr(connection, method)(*args, **named)

        if self.flavour.endswith("aio"):
            return asyncio.run(ask())
        with self.connect(model) as connection:
            return getattr(connection, method)(*args, **named)

    def connect(self, model: str = "") -> closing[Any]:
        """A connection to the server that has ``model``, of a blocking client."""
        return closing(self._open(model))

    def infer(
        self,
        model: str,
        inputs: Arrays,
        *,
        outputs: Sequence[str] = (),
        json_inputs: Collection[str] = (),
        json_outputs: Collection[str] = (),
        **named: Any,
    ) -> Answer:
        """Every output where none is named; ``json_...`` travel as JSON, the others as bytes."""
        result = self.call(
            "infer",
            model,
            [self.tensor(name, array, name not in json_inputs) for name, array in inputs.items()],
            outputs=[self.wanted(name, name not in json_outputs) for name in outputs] or None,
            model=model,
            **named,
        )
        return answer_of(result)

    def tensor(self, name: str, array: Array, binary: bool = True) -> Any:
        tensor = self._package.InferInput(name, list(array.shape), np_to_triton_dtype(array.dtype))
        return tensor.set_data_from_numpy(array, **self._how(binary))

    def wanted(self, name: str, binary: bool = True) -> Any:
        return self._package.InferRequestedOutput(name, **self._how(binary))

    def outcome(self, ask: Callable[[], object]) -> Outcome:
        """How the server took what ``ask`` asks."""
        try:
            ask()
        except InferenceServerException as error:
            status = str(error.status())
            if status in _CLIENT_CODES or (status.isdecimal() and 400 <= int(status) < 500):
                return Outcome.CLIENT_FAULT
            return Outcome.SERVER_FAULT
        return Outcome.OK

    def server_metadata(self) -> schema.ServerMetadataResponse:
        return self._message("get_server_metadata", schema.ServerMetadataResponse)

    def model_metadata(self, model: str, version: str = "") -> schema.ModelMetadataResponse:
        return self._message("get_model_metadata", schema.ModelMetadataResponse, model, version)

    def model_config(self, model: str, version: str = "") -> Any:
        message = schema.ModelConfigResponse
        return self._message("get_model_config", message, model, version, under="config").config

    def index(self) -> dict[str, Any]:
        """Model name to what the repository index says of it."""
        message = schema.RepositoryIndexResponse
        found = self._message("get_model_repository_index", message, under="models")
        return {entry.name: entry for entry in found.models}

    def statistics(self, model: str = "", version: str = "") -> list[Any]:
        """One entry for each version of ``model``, or of every model that is loaded."""
        message = schema.ModelStatisticsResponse
        return list(self._message("get_inference_statistics", message, model, version).model_stats)

    def regions(self, region: str = "") -> dict[str, Any]:
        """Name to key, offset and byte size of the system shared memory registered."""
        found = self.call("get_system_shared_memory_status", region)
        if self.is_grpc:
            return dict(found.regions)
        message = schema.SystemSharedMemoryStatusResponse.RegionStatus
        return {item["name"]: json_format.ParseDict(item, message()) for item in found}

    def _how(self, binary: bool) -> Mapping[str, bool]:
        return {} if self.is_grpc else {"binary_data": binary}

    def _open(self, model: str) -> Any:
        server = self.served.server_of(model)
        url = server.address_for("grpc") if self.is_grpc else server.url
        return FLAVOURS[self.flavour].InferenceServerClient(urlsplit(url).netloc)

    @property
    def _package(self) -> Any:
        return FLAVOURS[self.flavour.removesuffix(".aio")]

    def _message(self, method: str, kind: type[Message], *args: str, under: str = "") -> Any:
        found = self.call(method, *args, model=args[0] if args else "")
        if self.is_grpc:
            return found
        return json_format.ParseDict({under: found} if under else found, kind())


def answer_of(result: Any) -> Answer:
    """What one of the clients' results holds."""
    reply = result.get_response()
    if isinstance(reply, dict):
        told = [reply.get(key, "") for key in ("id", "model_name", "model_version")]
        names = [output["name"] for output in reply["outputs"]]
    else:
        told = [reply.id, reply.model_name, reply.model_version]
        names = [output.name for output in reply.outputs]
    return Answer(*told, {name: _as_bytes(result.as_numpy(name)) for name in names})


def _as_bytes(array: Array) -> Array:
    """``array``, with the text of BYTES from JSON as the ``bytes`` that it stands for."""
    if array.dtype != np.object_:
        return array
    elements = np.empty(array.shape, np.object_)
    elements.ravel()[:] = [e.encode() if isinstance(e, str) else e for e in array.ravel()]
    return elements
