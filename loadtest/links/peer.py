"""The far end of a link that is measured: it echoes, takes and sends bytes."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
import time

ECHO, SINK, SOURCE = b"e", b"u", b"d"
ASKED = struct.Struct(">cQ")
"""What the near end asks for, and of how many bytes; an echo repeats this too."""
TOOK = struct.Struct(">QQ")
"""The answer to ``SINK``: what ``take`` returns."""
BLOCK = bytes(65536)


class Peer:
    """The far end: echoes, takes, and sends bytes, a thread for each connection."""

    def __init__(self, host: str = "127.0.0.1") -> None:
        self._listening = socket.create_server((host, 0), backlog=64)
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def address(self) -> str:
        host, port = self._listening.getsockname()[:2]
        return f"{host}:{port}"

    def __enter__(self) -> Peer:
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(OSError):
            # Ends the wait in accept, which closing alone does not.
            self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self._listening.accept()
                threading.Thread(target=_answer, args=(connection,), daemon=True).start()


def _answer(connection: socket.socket) -> None:
    with connection, contextlib.suppress(OSError):
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        while True:
            header = whole(connection, ASKED.size)
            kind, count = ASKED.unpack(header)
            if kind == ECHO:
                connection.sendall(header + whole(connection, count))
            elif kind == SINK:
                connection.sendall(TOOK.pack(*take(connection, count)))
            else:
                send(connection, count)


def send(connection: socket.socket, count: int) -> None:
    for start in range(0, count, len(BLOCK)):
        connection.sendall(BLOCK[: count - start])


def whole(connection: socket.socket, count: int) -> bytes:
    """All ``count`` bytes, of a socket with a time limit too.

    Raises:
        ConnectionResetError: the other end closed before.
    """
    data = bytearray()
    while len(data) < count:
        part = connection.recv(count - len(data))
        if not part:
            raise ConnectionResetError("the far end closed the connection")
        data += part
    return bytes(data)


def take(connection: socket.socket, count: int) -> tuple[int, int]:
    """Bytes behind the first that came, and the ns from then to the last."""
    first = connection.recv(len(BLOCK))
    began_ns = time.monotonic_ns()
    left = count - len(first)
    while left:
        data = connection.recv(min(len(BLOCK), left))
        if not data:
            raise ConnectionResetError("the far end closed the connection")
        left -= len(data)
    return count - len(first), time.monotonic_ns() - began_ns
