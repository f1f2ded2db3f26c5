"""What one core can serve at most: a bare loop between a socket and ``session.run``.

It reads the same bytes from the same connections as a server does, runs the same session, and
writes the answer's bytes. It parses no HTTP: a request is as long as the first one on its
connection, and the tensor is its end. It does not check, queue, batch or count. Beside NumPy and
ONNX Runtime it imports nothing large, so its memory is that of a process that holds the session.
"""

from __future__ import annotations

import argparse
import re
import selectors
import socket
from pathlib import Path

import numpy as np
import onnxruntime

_HEAD_LIMIT = 64 * 1024
_CONTENT_LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)\r\n", re.IGNORECASE)
# What ONNX Runtime allocates itself begins at such addresses.
_ALIGNMENT_BYTES = 64


def request_bytes(start: bytes) -> int | None:
    """Length of a whole request, from its beginning; ``None`` while its head is not whole."""
    end = start.find(b"\r\n\r\n")
    if end < 0:
        return None
    declared = _CONTENT_LENGTH.search(start, 0, end + 2)
    return end + 4 + (int(declared[1]) if declared else 0)


class Loop:
    """One model with one input and one output, one row per request."""

    def __init__(self, model: Path) -> None:
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        self._session = onnxruntime.InferenceSession(str(model), options, ["CPUExecutionProvider"])
        (given,), (answer,) = self._session.get_inputs(), self._session.get_outputs()
        self._input, self._outputs = given.name, [answer.name]
        self._shape = (1, *given.shape[1:])

    def answer(self, tensor: np.ndarray) -> bytes:
        """``tensor``: bytes of one row; the reply with its head."""
        row = tensor.view(np.float32).reshape(self._shape)
        found: bytes = self._session.run(self._outputs, {self._input: row})[0].tobytes()
        return b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(found) + found

    @property
    def tensor_bytes(self) -> int:
        return int(np.prod(self._shape)) * np.dtype(np.float32).itemsize


class Connection:
    """One client's requests, each read into the same memory."""

    def __init__(self, client: socket.socket, loop: Loop) -> None:
        self.client = client
        self._loop = loop
        self._request = np.empty(0, np.uint8)
        self._filled = 0

    def read(self) -> bool:
        """Take what has come and answer a whole request; false when the client is gone."""
        if not len(self._request):
            start = self.client.recv(_HEAD_LIMIT, socket.MSG_PEEK)
            length = request_bytes(start)
            if length is None:
                return bool(start)
            self._request = self._memory(length)
        count = self.client.recv_into(self._request.data[self._filled :])
        self._filled += count
        if self._filled == len(self._request):
            self.client.sendall(self._loop.answer(self._request[-self._loop.tensor_bytes :]))
            self._filled = 0
        return count > 0

    def _memory(self, length: int) -> np.ndarray:
        """Room for one request whose tensor is aligned."""
        room = np.empty(length + _ALIGNMENT_BYTES, np.uint8)
        tensor_at = room.ctypes.data + length - self._loop.tensor_bytes
        skipped = -tensor_at % _ALIGNMENT_BYTES
        return room[skipped : skipped + length]


def serve(loop: Loop, port: int) -> None:
    """Answer on the loopback interface until the process is ended."""
    with (
        socket.create_server(("127.0.0.1", port), backlog=1024) as server,
        selectors.DefaultSelector() as selector,
    ):
        selector.register(server, selectors.EVENT_READ)
        while True:
            for key, _ in selector.select():
                if key.fileobj is server:
                    client, _ = server.accept()
                    client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                    selector.register(client, selectors.EVENT_READ, Connection(client, loop))
                    continue
                try:
                    alive = key.data.read()
                except ConnectionError:
                    alive = False
                if not alive:
                    selector.unregister(key.fileobj)
                    key.data.client.close()


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.limit")
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--port", type=int, required=True)
    asked = parser.parse_args()
    serve(Loop(asked.model), asked.port)


if __name__ == "__main__":
    main()
