"""Everything but inference: health, metadata, configuration, statistics, repository, regions."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Iterable, Mapping
from importlib.metadata import version as version_of
from pathlib import Path
from typing import Any, TypeGuard

from prometheus_client import CONTENT_TYPE_LATEST

from serving.backends.onnxruntime.catalogue import Catalogue
from serving.backends.onnxruntime.faults import UnknownModelError
from serving.backends.onnxruntime.http import Reply, json_reply
from serving.backends.onnxruntime.openapi import describe_interface
from serving.backends.onnxruntime.routes import Route
from serving.backends.onnxruntime.shared_memory import SharedMemory
from serving.errors import InfersweepError
from serving.exposition import ServerState, exposition
from serving.models.repository import describe_configuration
from serving.protocol import ProtocolError, json_object

NAME = "infersweep-onnxruntime"
PLATFORM = "onnxruntime_onnx"
EXTENSIONS = (
    "binary_tensor_data",
    "model_configuration",
    "model_repository",
    "statistics",
    "system_shared_memory",
)


def server_version() -> str:
    return version_of("infersweep")


class Operations:
    """Args: ``ready`` is whether new inferences are taken."""

    def __init__(
        self, catalogue: Catalogue, shared: SharedMemory, ready: Callable[[], bool]
    ) -> None:
        self._catalogue = catalogue
        self._shared = shared
        self._is_ready = ready
        self._by_name: Mapping[str, Callable[[Route, bytes], Awaitable[Reply]]] = {
            "live": self._live,
            "ready": self._ready,
            "server_metadata": self._server_metadata,
            "model_metadata": self._model_metadata,
            "model_ready": self._model_ready,
            "model_config": self._model_config,
            "statistics": self._statistics,
            "index": self._index,
            "load": self._load,
            "unload": self._unload,
            "regions": self._regions,
            "register": self._register,
            "unregister": self._unregister,
            "metrics": self._metrics,
            "openapi": self._openapi,
        }

    async def answer(self, route: Route, body: bytes) -> Reply:
        """The reply; raises what ``fault_of`` knows."""
        return await self._by_name[route.endpoint.operation](route, body)

    async def _live(self, _: Route, __: bytes) -> Reply:
        return Reply(200)

    async def _ready(self, _: Route, __: bytes) -> Reply:
        return Reply(200 if self._is_ready() else 503)

    async def _server_metadata(self, _: Route, __: bytes) -> Reply:
        return json_reply(
            {"name": NAME, "version": server_version(), "extensions": list(EXTENSIONS)}
        )

    async def _model_metadata(self, route: Route, _: bytes) -> Reply:
        found = self._catalogue.find(route.model, route.version)
        return json_reply(found.config.metadata(self._catalogue.versions_of(found.name), PLATFORM))

    async def _model_ready(self, route: Route, _: bytes) -> Reply:
        self._catalogue.find(route.model, route.version)
        return Reply(200 if self._is_ready() else 503)

    async def _model_config(self, route: Route, _: bytes) -> Reply:
        found = self._catalogue.find(route.model, route.version)
        return json_reply(await asyncio.to_thread(describe_configuration, found.model))

    async def _statistics(self, route: Route, _: bytes) -> Reply:
        stats = model_statistics(self._catalogue, route.model, route.version)
        return json_reply({"model_stats": stats})

    async def _index(self, _: Route, body: bytes) -> Reply:
        only_ready = bool(_json(body).get("ready"))
        entries = await asyncio.to_thread(self._catalogue.index, only_ready=only_ready)
        return json_reply(
            [{key: value for key, value in vars(entry).items() if value} for entry in entries]
        )

    async def _load(self, route: Route, body: bytes) -> Reply:
        await load(self._catalogue, route.model, _json(body).get("parameters") or {})
        return Reply(200)

    async def _unload(self, route: Route, _: bytes) -> Reply:
        await self._catalogue.unload(route.model)
        return Reply(200)

    async def _regions(self, route: Route, _: bytes) -> Reply:
        return json_reply(self._shared.status(route.region))

    async def _register(self, route: Route, body: bytes) -> Reply:
        told = _json(body)
        key, offset, size = told.get("key"), told.get("offset", 0), told.get("byte_size")
        if not (isinstance(key, str) and _whole(offset) and _whole(size)):
            raise ProtocolError("a region needs a text 'key', an 'offset' and a 'byte_size'")
        self._shared.register(str(route.region), key, offset, size)
        return Reply(200)

    async def _unregister(self, route: Route, _: bytes) -> Reply:
        self._shared.unregister(route.region)
        return Reply(200)

    async def _metrics(self, _: Route, __: bytes) -> Reply:
        state = ServerState(self._catalogue.sources(), _restarts(), threads=_threads())
        return Reply(200, exposition(state), media_type=CONTENT_TYPE_LATEST)

    async def _openapi(self, _: Route, __: bytes) -> Reply:
        return json_reply(describe_interface(NAME, server_version()))


async def load(catalogue: Catalogue, name: str, parameters: Iterable[str]) -> None:
    """Load a model for a client.

    Raises:
        UnknownModelError: the repository has none of that name.
        ProtocolError: it cannot be served, or a parameter wants it served otherwise than its
            folder says; the client named it, so the client is told.
    """
    told = ", ".join(parameters)
    if told:
        raise ProtocolError(f"load parameters are not supported: {told}; change the model's folder")
    known = {entry.name for entry in await asyncio.to_thread(catalogue.index)}
    if name not in known:
        raise UnknownModelError(f"there is no model {name!r} in the repository")
    try:
        await catalogue.load(name)
    except InfersweepError as error:
        raise ProtocolError(str(error)) from None


def model_statistics(catalogue: Catalogue, name: str, version: str) -> list[dict[str, Any]]:
    """Statistics of one version, of all versions of a model, or of everything.

    Raises:
        UnknownModelError: it is not served.
    """
    if version:
        chosen = [catalogue.find(name, version)]
    elif name:
        numbers = catalogue.versions_of(catalogue.find(name, "").name)
        chosen = [catalogue.find(name, str(number)) for number in numbers]
    else:
        chosen = list(catalogue.all())
    return [one.statistics.describe(one.name, one.version) for one in chosen]


def _restarts() -> int:
    """As told by ``serving.supervise``; none without it."""
    return int(os.environ.get("INFERSWEEP_RESTARTS", "0"))


def _threads() -> int:
    """Also those that Python did not start."""
    return sum(1 for _ in Path("/proc/self/task").iterdir())


def _json(body: bytes) -> Mapping[str, Any]:
    return json_object(body, with_binary=True) if body else {}


def _whole(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0
