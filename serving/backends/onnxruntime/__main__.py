"""Serve one model over HTTP on granian's RSGI interface, until SIGTERM has been drained."""

from __future__ import annotations

import argparse
import asyncio
import signal
import sys
from pathlib import Path
from typing import Any

import uvloop
from granian.server.embed import Server

from serving.backends.onnxruntime.app import Answer, Application, Limits
from serving.errors import InfersweepError
from serving.models.repository import Model
from serving.process import require_free_port

DRAIN_LIMIT_S = 10.0
_POLL_S = 0.02
_HEADER = "inference-header-content-length"


def main() -> int:
    limits = Limits()
    parser = argparse.ArgumentParser(prog="python -m serving.backends.onnxruntime")
    parser.add_argument("--repository", type=Path, required=True)
    parser.add_argument("--model", required=True)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8000)
    parser.add_argument("--body-limit", type=int, default=limits.body_bytes, metavar="BYTES")
    parser.add_argument("--queue-limit", type=int, default=limits.queue, metavar="REQUESTS")
    asked = parser.parse_args()
    limits = Limits(body_bytes=asked.body_limit, queue=asked.queue_limit)
    print(f"limits: {limits}", flush=True)  # noqa: T201  (the server's log)
    try:
        # Granian shares a port that another server holds, and each would get half the requests.
        require_free_port(asked.port, asked.host)
        application = Application(Model(asked.repository, asked.model), limits)
    except InfersweepError as error:
        print(error, file=sys.stderr)  # noqa: T201
        return error.exit_code
    uvloop.run(_serve(application, asked.host, asked.port))
    return 0


async def _serve(application: Application, host: str, port: int) -> None:
    async def handle(scope: Any, protocol: Any) -> None:
        answer = await _answer(application, scope, protocol)
        protocol.response_bytes(answer.status, list(answer.headers), answer.body)

    server = Server(
        handle, address=host, port=port, interface="rsgi", websockets=False, backlog=1024
    )
    loop = asyncio.get_running_loop()
    stopping = asyncio.Event()
    serving = loop.create_task(server.serve())
    # Granian takes the signals when it starts; ours come after, so that the queue drains first.
    await asyncio.sleep(0)
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopping.set)
    stopped = loop.create_task(stopping.wait())
    await asyncio.wait({serving, stopped}, return_when=asyncio.FIRST_COMPLETED)
    await _drain(application)
    server.stop()
    await serving
    application.batcher.close()


async def _answer(application: Application, scope: Any, protocol: Any) -> Answer:
    refusal = application.refusal(scope.method, scope.path)
    if refusal:
        return refusal
    if scope.method != "POST":
        return application.get(scope.path)
    body = await _read(scope, protocol, application.limits.body_bytes)
    if body is None:
        return application.too_large()
    return await application.infer(scope.headers.get(_HEADER), body)


async def _read(scope: Any, protocol: Any, limit: int) -> bytes | None:
    """The body, or ``None`` when it is larger than ``limit``."""
    declared = scope.headers.get("content-length")
    if declared is not None and int(declared) <= limit:
        body: bytes = await protocol()
        return body
    # Too large, or of unknown length. It is read to its end but not kept: a client that is cut
    # off while it sends sees a broken connection in place of the reason.
    parts: list[bytes] = []
    size = 0
    async for part in protocol:
        size += len(part)
        if size <= limit:
            parts.append(part)
    return b"".join(parts) if size <= limit else None


async def _drain(application: Application) -> None:
    """Not ready first, then wait for what is in flight."""
    application.ready = False
    end = asyncio.get_running_loop().time() + DRAIN_LIMIT_S
    while application.in_flight and asyncio.get_running_loop().time() < end:
        await asyncio.sleep(_POLL_S)
    if application.in_flight:
        print(f"cut {application.in_flight} requests", flush=True)  # noqa: T201


if __name__ == "__main__":
    sys.exit(main())
