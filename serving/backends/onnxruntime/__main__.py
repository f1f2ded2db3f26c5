"""The server: start, load, answer, and on SIGTERM finish what is in flight."""

from __future__ import annotations

import asyncio
import contextlib
import resource
import signal
import ssl
import sys

import uvloop

from serving.backends.onnxruntime import grpc_front
from serving.backends.onnxruntime.app import Application
from serving.backends.onnxruntime.catalogue import Catalogue
from serving.backends.onnxruntime.http import HeadParser, HttpServer
from serving.backends.onnxruntime.routes import find_route
from serving.backends.onnxruntime.settings import Settings, parse
from serving.backends.onnxruntime.shared_memory import SharedMemory
from serving.errors import InfersweepError, MachineError
from serving.process import require_free_port

_POLL_S = 0.02


def main() -> int:
    """Serve until told to stop; returns the exit code."""
    try:
        settings = parse()
        _open_files()
        print(f"limits: {settings.limits}", flush=True)  # noqa: T201  (the server's log)
        uvloop.run(_serve(settings))
    except InfersweepError as error:
        print(error, file=sys.stderr)  # noqa: T201
        return error.exit_code
    return 0


def _open_files() -> None:
    """As many as are allowed: each connection is one, and the usual limit is for select(2)."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


async def _serve(settings: Settings) -> None:
    limits = settings.limits
    stopping = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stopping.set)
    tls = _tls(settings)
    if not settings.reuse_port:
        require_free_port(settings.port, settings.host)
    if settings.metrics_port is not None:
        require_free_port(settings.metrics_port, settings.host)
    catalogue = Catalogue(settings.repository, limits, settings.slo_ns)
    app = Application(catalogue, SharedMemory(limits.body_bytes), limits)
    heads = HeadParser(find_route, limits.headers, settings.token)
    server = HttpServer(app, heads, limits)
    await _load_all(catalogue, settings)
    await _listen(server, settings, tls)
    grpc_at = "" if settings.grpc_port is None else f", gRPC at port {settings.grpc_port}"
    print(f"serving at {settings.host}:{settings.port}{grpc_at}", flush=True)  # noqa: T201
    rpc = await grpc_front.start(app, settings) if settings.grpc_port is not None else None
    polling = asyncio.create_task(_poll(catalogue, settings.poll_s))
    await stopping.wait()
    polling.cancel()
    await _drain(app, server, limits.drain_s)
    server.close()
    if rpc is not None:
        await rpc.stop(0)
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(catalogue.close(), 1.0)


async def _listen(server: HttpServer, settings: Settings, tls: ssl.SSLContext | None) -> None:
    shared = settings.reuse_port
    try:
        await server.listen(settings.host, settings.port, tls, reuse_port=shared)
        if settings.metrics_port is not None:
            await server.listen(settings.host, settings.metrics_port, tls)
    except OSError as error:
        raise MachineError(
            f"cannot listen at {settings.host}: {error}",
            hint="Choose another --port or --metrics-port, or stop what listens there.",
        ) from None


async def _load_all(catalogue: Catalogue, settings: Settings) -> None:
    for name in settings.models:
        await catalogue.load(name)


async def _poll(catalogue: Catalogue, every_s: float) -> None:
    while every_s:
        await asyncio.sleep(every_s)
        await catalogue.poll()


async def _drain(app: Application, server: HttpServer, limit_s: float) -> None:
    """Not ready first, then no new connections, then wait for what is in flight."""
    app.draining = True
    server.drain()
    loop = asyncio.get_running_loop()
    end = loop.time() + limit_s
    while (left := max(app.in_flight, server.owed)) and loop.time() < end:
        await asyncio.sleep(_POLL_S)
    if left:
        print(f"cut {left} requests", flush=True)  # noqa: T201


def _tls(settings: Settings) -> ssl.SSLContext | None:
    if settings.certificate is None:
        return None
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    try:
        context.load_cert_chain(settings.certificate, settings.key)
    except OSError as error:
        raise MachineError(
            f"the certificate {settings.certificate} cannot be used: {error}",
            hint="Give a PEM file and its key with --tls-certificate and --tls-key.",
        ) from None
    return context


if __name__ == "__main__":
    sys.exit(main())
