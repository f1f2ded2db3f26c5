"""A server that answers every request alike and notes in which order requests and answers pass."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

from serving.protocol import HEADER_LENGTH


@dataclass(frozen=True)
class Event:
    """Attributes: ``came`` for a request, else its answer; ``port`` names the connection."""

    came: bool
    port: int
    parameters: dict[str, Any]


@dataclass
class Watch:
    url: str = ""
    events: list[Event] = field(default_factory=list)

    def by_sequence(self) -> dict[int, list[Event]]:
        found: dict[int, list[Event]] = {}
        for event in self.events:
            found.setdefault(event.parameters["sequence_id"], []).append(event)
        return found


@contextmanager
def watching_server(reply: bytes, json_length: int, service_s: float) -> Iterator[Watch]:
    watch = Watch()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            header = json.loads(body[: int(self.headers[HEADER_LENGTH])])
            event = Event(True, self.client_address[1], header["parameters"])
            watch.events.append(event)
            time.sleep(service_s)
            # Noted before it leaves: afterwards the next request may be there first.
            watch.events.append(Event(False, event.port, event.parameters))
            self.send_response(200)
            self.send_header("Content-Length", str(len(reply)))
            self.send_header(HEADER_LENGTH, str(json_length))
            self.end_headers()
            self.wfile.write(reply)

        def log_message(self, *_: object) -> None:
            """Not on the terminal."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        watch.url = f"http://127.0.0.1:{server.server_port}"
        thread = Thread(target=server.serve_forever)
        thread.start()
        yield watch
        server.shutdown()
        thread.join()
