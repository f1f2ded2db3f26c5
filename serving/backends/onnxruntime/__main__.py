"""Serve one model over HTTP on granian's RSGI interface, until SIGTERM has been drained."""

from __future__ import annotations

import argparse
import asyncio
import signal
from pathlib import Path
from typing import Any

import uvloop
from granian.server.embed import Server

from serving.backends.onnxruntime.app import Answer, Application, Limits
from serving.models.repository import Model

DRAIN_LIMIT_S = 10.0
_POLL_S = 0.02
_HEADER = "inference-header-content-length"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m serving.backends.onnxruntime")
    parser.add_argument("--repository", type=Path, required=True)
    parser.add_argument("--model", required=True)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8000)
    asked = parser.parse_args()
    limits = Limits()
    print(f"limits: {limits}", flush=True)  # noqa: T201  (the server's log)
    application = Application(Model(asked.repository, asked.model), limits)
    uvloop.run(_serve(application, asked.host, asked.port))


async def _serve(application: Application, host: str, port: int) -> None:
    async def handle(scope: Any, protocol: Any) -> None:
        answer = await _answer(application, scope, protocol)
        protocol.response_bytes(answer.status, list(answer.headers), answer.body)

    server = Server(handle, address=host, port=port, interface="rsgi", websockets=False)
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
    if scope.method == "POST":
        body = await protocol()
        return await application.post(scope.path, scope.headers.get(_HEADER), body)
    if scope.method in ("GET", "HEAD"):
        return application.get(scope.path)
    return Answer(405, b'{"error":"GET or POST"}')


async def _drain(application: Application) -> None:
    """Not ready first, then wait for what is in flight."""
    application.ready = False
    end = asyncio.get_running_loop().time() + DRAIN_LIMIT_S
    while application.in_flight and asyncio.get_running_loop().time() < end:
        await asyncio.sleep(_POLL_S)
    if application.in_flight:
        print(f"cut {application.in_flight} requests", flush=True)  # noqa: T201


if __name__ == "__main__":
    main()
