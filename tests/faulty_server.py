"""A server that does what servers do when they fail. The model's name says which fault.

Run as ``python -m tests.faulty_server REPLY JSON_LENGTH [CERTIFICATE]``; prints its port. One
thread per connection, plain sockets, so that every byte and every silence is meant.
"""

from __future__ import annotations

import socket
import ssl
import struct
import sys
import threading
import time
from pathlib import Path

SLOW_S = 0.2


class Client:
    def __init__(self, connected: socket.socket, body: bytes, json_length: int) -> None:
        self._socket = connected
        self._body = body
        self._length = f"Inference-Header-Content-Length: {json_length}\r\n"

    def serve(self) -> None:
        try:
            while (mode := self._read_request()) and self._answer(mode):
                pass
        except OSError:
            pass
        finally:
            self._socket.close()

    def _read_request(self) -> str:
        data = b""
        while b"\r\n\r\n" not in data:
            more = self._socket.recv(65536)
            if not more:
                return ""
            data += more
        head, _, body = data.partition(b"\r\n\r\n")
        wanted = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
        while len(body) < wanted:
            body += self._socket.recv(65536)
        refused = b"/authorized/" in head and b"Authorization: Bearer secret" not in head
        return "400" if refused else head.split(b"/")[3].decode()

    def _whole(self, body: bytes, status: str = "200 OK", extra: str = "") -> bytes:
        head = f"HTTP/1.1 {status}\r\ncontent-LENGTH:  {len(body)} \r\n{self._length}{extra}\r\n"
        return head.encode() + body

    def _chunked(self) -> bytes:
        head = f"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n{self._length}\r\n".encode()
        parts = (self._body[:1], self._body[1:7], self._body[7:])
        return head + b"".join(b"%X;a=1\r\n%b\r\n" % (len(p), p) for p in parts) + b"0\r\n\r\n"

    def _answer(self, mode: str) -> bool:
        """Whether the connection stays open."""
        time.sleep({"slow": SLOW_S, "hang": 60.0}.get(mode, 0.0))
        if mode == "reset":
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            return False
        whole = self._whole(self._body)
        replies = {
            "chunked": self._chunked(),
            "closing": self._whole(self._body, extra="Connection: close\r\n"),
            "endless": f"HTTP/1.1 200 OK\r\n{self._length}\r\n".encode() + self._body,
            "wrong": self._whole(self._body[:-8] + struct.pack("<2f", 9e9, 9e9)),
            "short": self._whole(self._body[:-4]),
            "400": self._whole(b'{"error":"no"}', status="400 No"),
            "503": self._whole(b'{"error":"no"}', status="503 No"),
            "garbage": b"SSH-2.0-OpenSSH_9.2\r\n\r\n",
            "negative": b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
            "half": whole[:-10],
        }
        reply = replies.get(mode, whole)
        step = 1 if mode == "bytewise" else len(reply)
        for at in range(0, len(reply), step):
            self._socket.sendall(reply[at : at + step])
        return mode not in ("closing", "endless", "half")


def main() -> None:
    body, json_length = Path(sys.argv[1]).read_bytes(), int(sys.argv[2])
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER) if len(sys.argv) > 3 else None
    if tls:
        tls.load_cert_chain(sys.argv[3])
    with socket.create_server(("127.0.0.1", 0), backlog=512) as listening:
        print(listening.getsockname()[1], flush=True)  # noqa: T201
        while True:
            connected, _ = listening.accept()
            connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if tls:
                connected = tls.wrap_socket(connected, server_side=True)
            client = Client(connected, body, json_length)
            threading.Thread(target=client.serve, daemon=True).start()


if __name__ == "__main__":
    main()
