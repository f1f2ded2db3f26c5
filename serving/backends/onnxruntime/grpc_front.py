"""The same server over gRPC: the methods of ``GRPCInferenceService``.

``pygrpc_native`` does HTTP/2 outside Python and answers some five times as many calls per second as
``grpc.aio``, whose interface it has. It knows no TLS, and takes a message into memory, unpacked,
before it looks at the limit: what other machines can reach stays with ``grpc.aio``.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any

import grpc
import pygrpc_native.aio
from google.protobuf import json_format
from tritonclient.grpc import service_pb2 as pb
from tritonclient.grpc import service_pb2_grpc

from serving.backends.onnxruntime.app import Application
from serving.backends.onnxruntime.faults import Fault
from serving.backends.onnxruntime.http.head import ECHOED, bears
from serving.backends.onnxruntime.operations import (
    EXTENSIONS,
    NAME,
    PLATFORM,
    load,
    model_statistics,
    server_version,
)
from serving.backends.onnxruntime.pipeline import Loaded
from serving.backends.onnxruntime.plan import Plan
from serving.backends.onnxruntime.settings import Settings
from serving.batching import Outcome, Pending
from serving.errors import MachineError
from serving.models.config import load_message
from serving.protocol import Array, to_binary
from serving.protocol.grpc_server import (
    add_output,
    add_shared_output,
    describe_request,
    start_response,
)

_OPEN = ("/ServerLive", "/ServerReady")
_CODES = {
    400: grpc.StatusCode.INVALID_ARGUMENT,
    404: grpc.StatusCode.NOT_FOUND,
    413: grpc.StatusCode.RESOURCE_EXHAUSTED,
    503: grpc.StatusCode.UNAVAILABLE,
}
Context = Any
Method = Callable[["Service", Any, Context], Awaitable[Any]]


async def start(app: Application, settings: Settings) -> grpc.aio.Server:
    """A gRPC server that listens at the port of ``settings``.

    Raises:
        MachineError: the port or the certificate cannot be used.
    """
    limit = settings.limits.grpc_message_bytes
    native = settings.local and settings.certificate is None
    server = (pygrpc_native.aio.server if native else grpc.aio.server)(
        interceptors=[_Gate(settings.token)] if settings.token else [],
        options=[
            ("grpc.max_receive_message_length", limit),
            ("grpc.max_send_message_length", limit),
            ("grpc.so_reuseport", int(settings.reuse_port)),
        ],
    )
    service_pb2_grpc.add_GRPCInferenceServiceServicer_to_server(Service(app), server)
    address = f"{settings.host}:{settings.grpc_port}"
    try:
        if settings.certificate and settings.key:
            pair = (settings.key.read_bytes(), settings.certificate.read_bytes())
            server.add_secure_port(address, grpc.ssl_server_credentials([pair]))
        else:
            server.add_insecure_port(address)
    except (OSError, RuntimeError) as error:
        raise MachineError(
            f"gRPC cannot listen at {address}: {error}", hint="Choose another --grpc-port."
        ) from None
    await server.start()
    return server


def _told(method: Method) -> Method:
    """Turn what a method raises into the status that tells it."""

    @functools.wraps(method)
    async def told(service: Service, request: Any, context: Context) -> Any:
        try:
            return await method(service, request, context)
        except Exception as error:
            await service.abort(error, context)

    return told


class Service(service_pb2_grpc.GRPCInferenceServiceServicer):
    """Method names are the protocol's."""

    def __init__(self, app: Application) -> None:
        self._app = app
        self._catalogue = app.catalogue

    async def abort(self, error: Exception, context: Context) -> None:
        """End the call with what ``error`` means; raises."""
        found = error.fault if isinstance(error, _InferError) else self._app.failed(error)
        code = _CODES.get(found.status, grpc.StatusCode.INTERNAL)
        await context.abort(code, found.text)

    async def ServerLive(self, _: Any, __: Context) -> Any:
        return pb.ServerLiveResponse(live=True)

    async def ServerReady(self, _: Any, __: Context) -> Any:
        return pb.ServerReadyResponse(ready=self._app.ready)

    async def ServerMetadata(self, _: Any, __: Context) -> Any:
        return pb.ServerMetadataResponse(name=NAME, version=server_version(), extensions=EXTENSIONS)

    async def ModelReady(self, request: Any, _: Context) -> Any:
        served = (request.name, request.version) in self._catalogue
        return pb.ModelReadyResponse(ready=served and self._app.ready)

    @_told
    async def ModelMetadata(self, request: Any, _: Context) -> Any:
        found = self._catalogue.find(request.name, request.version)
        versions = self._catalogue.versions_of(found.name)
        described = found.config.metadata(versions, PLATFORM)
        return json_format.ParseDict(described, pb.ModelMetadataResponse())

    @_told
    async def ModelConfig(self, request: Any, _: Context) -> Any:
        found = self._catalogue.find(request.name, request.version)
        path = found.model.folder / "config.pbtxt"
        return pb.ModelConfigResponse(config=await asyncio.to_thread(load_message, path))

    @_told
    async def ModelStatistics(self, request: Any, _: Context) -> Any:
        stats = model_statistics(self._catalogue, request.name, request.version)
        return json_format.ParseDict({"model_stats": stats}, pb.ModelStatisticsResponse())

    @_told
    async def RepositoryIndex(self, request: Any, _: Context) -> Any:
        entries = await asyncio.to_thread(self._catalogue.index, only_ready=request.ready)
        models = [pb.RepositoryIndexResponse.ModelIndex(**vars(entry)) for entry in entries]
        return pb.RepositoryIndexResponse(models=models)

    @_told
    async def RepositoryModelLoad(self, request: Any, _: Context) -> Any:
        await load(self._catalogue, request.model_name, request.parameters)
        return pb.RepositoryModelLoadResponse()

    @_told
    async def RepositoryModelUnload(self, request: Any, _: Context) -> Any:
        await self._catalogue.unload(request.model_name)
        return pb.RepositoryModelUnloadResponse()

    @_told
    async def SystemSharedMemoryStatus(self, request: Any, _: Context) -> Any:
        response = pb.SystemSharedMemoryStatusResponse()
        for region in self._app.shared.status(request.name or None):
            status = pb.SystemSharedMemoryStatusResponse.RegionStatus(**region)
            response.regions[status.name].CopyFrom(status)
        return response

    @_told
    async def SystemSharedMemoryRegister(self, request: Any, _: Context) -> Any:
        self._app.shared.register(request.name, request.key, request.offset, request.byte_size)
        return pb.SystemSharedMemoryRegisterResponse()

    async def SystemSharedMemoryUnregister(self, request: Any, _: Context) -> Any:
        self._app.shared.unregister(request.name or None)
        return pb.SystemSharedMemoryUnregisterResponse()

    @_told
    async def ModelInfer(self, request: Any, context: Context) -> Any:
        echoed = [(key, value) for key, value in context.invocation_metadata() if key in ECHOED]
        if echoed:
            await context.send_initial_metadata(echoed)
        return await self._infer(request)

    async def ModelStreamInfer(self, requests: AsyncIterator[Any], _: Context) -> Any:
        async for request in requests:
            try:
                response = await self._infer(request)
            except _InferError as error:
                yield pb.ModelStreamInferResponse(error_message=error.fault.text)
            else:
                yield pb.ModelStreamInferResponse(infer_response=response)

    async def _infer(self, message: Any) -> Any:
        version = None
        try:
            self._app.require_open()
            version = self._catalogue.find(message.model_name, message.model_version)
            header, blobs = describe_request(message)
            plan = version.planner.plan_for(header)
            request = GrpcRequest(plan, version.planner.inputs_of(plan, blobs, self._app.shared))
            version.submit(request)
        except Exception as error:
            raise _InferError(self._app.failed(error, version)) from None
        self._app.begin(version)
        try:
            response = self._response(version, plan, await request.answer)
        except asyncio.CancelledError:
            # What is being computed already is computed for nobody.
            version.cancel(request)
            self._app.end(version, "cancelled")
            raise
        except Exception as error:
            found = self._app.failed(error)
            self._app.end(version, found.outcome)
            raise _InferError(found) from None
        self._app.end(version, "ok")
        return response

    def _response(self, version: Loaded, plan: Plan, outputs: Mapping[str, Array]) -> Any:
        response = start_response(version.name, version.version, plan.header)
        for output in plan.wanted:
            tensor = version.planner.tensor(output.name, outputs)
            if output.region is None:
                add_output(response, tensor)
            else:
                size = self._app.shared.write(output.region, to_binary(tensor))
                add_shared_output(response, tensor, output.region, size)
        return response


class GrpcRequest(Pending):
    """Attributes: ``answer`` gives the outputs, or raises why there are none."""

    __slots__ = ("answer",)

    def __init__(self, plan: Plan, inputs: Mapping[str, Array]) -> None:
        super().__init__(inputs, plan.rows, plan.shapes, plan.header.timeout_us * 1_000)
        loop = asyncio.get_running_loop()
        self.answer: asyncio.Future[Mapping[str, Array]] = loop.create_future()

    def done(self, outcome: Outcome) -> None:
        if self.answer.done():
            return
        if isinstance(outcome, Exception):
            self.answer.set_exception(outcome)
        else:
            self.answer.set_result(outcome)


class _InferError(Exception):
    """An inference that failed, and has been counted."""

    def __init__(self, fault: Fault) -> None:
        super().__init__(fault.text)
        self.fault = fault


class _Gate(grpc.aio.ServerInterceptor):
    """Turns away calls without the token, except for health."""

    def __init__(self, token: str) -> None:
        self._token = token

    async def intercept_service(self, continuation: Any, call: Any) -> Any:
        told = dict(call.invocation_metadata).get("authorization", "")
        handler = await continuation(call)
        if handler is None or call.method.endswith(_OPEN) or bears(told.encode(), self._token):
            return handler
        if handler.request_streaming:
            return grpc.stream_stream_rpc_method_handler(_refuse)
        return grpc.unary_unary_rpc_method_handler(_refuse)


async def _refuse(_: Any, context: Context) -> None:
    await context.abort(grpc.StatusCode.UNAUTHENTICATED, "a bearer token is needed")
