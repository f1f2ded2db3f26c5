"""The endpoint that Prometheus reads, on a thread of gunicorn's arbiter.

Inside a worker, a scrape would wait behind the requests.
"""

from __future__ import annotations

import os
import signal
import socketserver
import sys
import threading
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from typing import Any

from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.registry import Collector

from serving.errors import MachineError

_CLIENT_S = 10.0
_forking = threading.Lock()
"""Held while a scrape is rendered and while the arbiter forks. What another thread holds at a fork,
a lock of Python's or the C library's, stays locked in the new worker for ever."""


class Exporter:
    """Has the port from the beginning, so that it is known at once whether it can be had."""

    def __init__(self, host: str, port: int) -> None:
        """Raises MachineError when something else listens there."""
        try:
            self._server = _Server((host, port), _Scrape)
        except OSError as error:
            raise MachineError(
                f"port {port} on {host} cannot be used for metrics: {error.strerror}",
                hint="Set INFERSWEEP_FASTAPI_METRICS_PORT to another, or stop what listens there.",
            ) from None

    def start(self, metrics: Collector) -> None:
        """Answer with ``metrics`` from now on, until the process ends."""
        self._server.metrics = metrics
        os.register_at_fork(
            before=_forking.acquire,
            after_in_parent=_forking.release,
            after_in_child=_forking.release,
        )
        # Every signal is the arbiter's: its main thread waits for them.
        previous = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        threading.Thread(target=self._server.serve_forever, name="metrics", daemon=True).start()
        signal.pthread_sigmask(signal.SIG_SETMASK, previous)

    def stop(self) -> None:
        """Wait for the scrape that is being rendered, and let no other begin."""
        _forking.acquire()

    def leave(self) -> None:
        """In a worker: the port stays the arbiter's."""
        self._server.socket.close()


class _Server(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
    daemon_threads = True
    metrics: Collector

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that leaves is no error."""
        if not isinstance(sys.exception(), OSError):
            super().handle_error(request, client_address)


class _Scrape(BaseHTTPRequestHandler):
    server: _Server
    timeout = _CLIENT_S

    def do_GET(self) -> None:
        with _forking:
            found = self.path.partition("?")[0] == "/metrics"
            body = generate_latest(self.server.metrics) if found else b""
            self.send_response(HTTPStatus.OK if found else HTTPStatus.NOT_FOUND)
            self.send_header("Content-Type", CONTENT_TYPE_LATEST)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
        # Not under the lock: a client may take its time.
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  (the base's name)
        """A scrape every second is no news."""
