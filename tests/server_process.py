"""The ONNX Runtime server as a process, and short ways to talk to it."""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import psutil

from serving.backends.base import ServePlan
from serving.backends.onnxruntime.launch import BACKEND
from serving.models.repository import Model
from serving.process import RunningProcess, free_port, wait_until
from serving.protocol import HEADER_LENGTH, Array, Tensor, decode_response, encode_request


class Server:
    """A running server and its address."""

    def __init__(self, url: str, grpc_url: str, process: RunningProcess) -> None:
        self.url = url
        self.grpc_url = grpc_url
        self.process = process

    @property
    def worker(self) -> psutil.Process:
        """The process that serves; the one that was started only watches over it."""
        (worker,) = psutil.Process(self.process.pid).children()
        return worker

    def send(
        self, method: str, path: str, body: bytes = b"", headers: Mapping[str, str] | None = None
    ) -> tuple[int, bytes, Mapping[str, str]]:
        connection = http.client.HTTPConnection(urlsplit(self.url).netloc, timeout=20)
        try:
            connection.request(method, path, body, dict(headers or {}))
            reply = connection.getresponse()
            return reply.status, reply.read(), dict(reply.headers)
        finally:
            connection.close()

    def infer(
        self, array: Array, *, model: str = "tiny", binary: bool = True
    ) -> tuple[int, Array | str]:
        """Status, and the output or the error."""
        body, length = encode_request([Tensor.of("x", array)], binary=binary)
        headers = {} if length is None else {HEADER_LENGTH: str(length)}
        status, content, told = self.send("POST", f"/v2/models/{model}/infer", body, headers)
        if status != 200:
            return status, json.loads(content)["error"]
        header_length = told.get(HEADER_LENGTH.lower(), None)
        outputs = decode_response(content, int(header_length) if header_length else None)
        return status, outputs["y"].array

    def ready(self) -> bool:
        try:
            return self.send("GET", "/v2/health/ready")[0] == 200
        except OSError:
            return False

    def metric(self, name: str) -> float:
        text = self.send("GET", "/metrics")[1].decode()
        return sum(float(line.split()[-1]) for line in text.splitlines() if line.startswith(name))

    def wait_for(self, name: str, value: float) -> None:
        """Until the metric has the value."""
        wait_until(
            lambda: self.metric(name) == value,
            deadline_s=10,
            process=self.process,
            what=f"{name} at {value}",
            poll_s=0.01,
        )


@contextmanager
def serve(model: Model, folder: Path, *more: str) -> Iterator[Server]:
    """The server for ``model``, with further arguments of its command line."""
    plan = ServePlan("onnxruntime", "", model, (), free_port(), folder)
    launch = BACKEND.launch(plan)
    with RunningProcess((*launch.argv, *more), log=folder / "server.log") as process:
        server = Server(launch.url, launch.grpc_url or "", process)
        wait_until(server.ready, deadline_s=30, process=process, what="server", poll_s=0.02)
        yield server
