"""When a server may be called ready: it says so, its model says so, every worker has answered."""

from __future__ import annotations

import http.client
import ssl
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import tritonclient.grpc
import tritonclient.http
from tritonclient.utils import InferenceServerException

from serving.errors import ServerError
from serving.process import RunningProcess, wait_until

WORKER_HEADER = "X-Infersweep-Worker"
"""Names the worker process in each reply of a server that has several."""


@dataclass(frozen=True)
class Access:
    """What a server asks of its clients.

    Attributes:
        headers: sent with every request, such as those for authentication.
        ca_file: certificates to trust for TLS; the system's own when ``None``.
    """

    headers: Mapping[str, str] = field(default_factory=dict)
    ca_file: Path | None = None

    def tls(self) -> ssl.SSLContext:
        return ssl.create_default_context(cafile=self.ca_file)


OPEN = Access()


def is_grpc(url: str) -> bool:
    return urlsplit(url).scheme in ("grpc", "grpcs")


Client = Any
"""Either of NVIDIA's clients; both are untyped, and their calls have the same names."""


def client_for(url: str, access: Access = OPEN) -> Client:
    """NVIDIA's own client for the address, which shares no code with ours."""
    address = urlsplit(url)
    if is_grpc(url):
        return tritonclient.grpc.InferenceServerClient(
            address.netloc,
            ssl=address.scheme == "grpcs",
            root_certificates=str(access.ca_file) if access.ca_file else None,
        )
    secure = address.scheme == "https"
    return tritonclient.http.InferenceServerClient(
        address.netloc,
        network_timeout=60.0,
        ssl=secure,
        ssl_context_factory=access.tls if secure else None,
    )


def get_status(url: str, path: str, timeout_s: float = 2.0, access: Access = OPEN) -> int | None:
    """HTTP status of a GET, ``None`` when nothing answers."""
    try:
        return _exchange(url, "GET", path, b"", access.headers, timeout_s, access)[0]
    except (OSError, http.client.HTTPException):
        return None


def is_ready(url: str, model: str, access: Access = OPEN) -> bool:
    """Whether the server and the model both say that they are ready."""
    if is_grpc(url):
        return _is_ready_by_grpc(url, model, access)
    return (
        get_status(url, "/v2/health/ready", access=access) == 200
        and get_status(url, f"/v2/models/{model}/ready", access=access) == 200
    )


def _is_ready_by_grpc(url: str, model: str, access: Access) -> bool:
    with client_for(url, access) as client:
        try:
            return bool(
                client.is_server_ready(headers=access.headers, client_timeout=2.0)
                and client.is_model_ready(model, headers=access.headers, client_timeout=2.0)
            )
        except InferenceServerException:
            return False


def wait_ready(
    url: str,
    model: str,
    *,
    deadline_s: float,
    process: RunningProcess | None,
    label: str,
    access: Access = OPEN,
) -> float:
    """Wait for readiness; returns the seconds it took.

    Raises:
        ServerError: the process died, or the deadline passed; with the end of its log.
    """
    return wait_until(
        lambda: is_ready(url, model, access),
        deadline_s=deadline_s,
        process=process,
        what=f"{label} at {url} is not ready to serve {model!r}",
    )


def reach_every_worker(
    url: str, model: str, body: bytes, headers: dict[str, str], *, count: int, deadline_s: float
) -> int:
    """Send requests on new connections until ``count`` worker processes have answered.

    Returns:
        The number of requests sent.

    Raises:
        ServerError: a request failed, or the deadline passed before all had answered.
    """
    seen: set[str] = set()
    sent = 0
    end = time.monotonic() + deadline_s
    while len(seen) < count:
        if time.monotonic() > end:
            raise ServerError(
                f"only {len(seen)} of {count} workers at {url} answered within {deadline_s:g} s",
                hint="Look into the server's log for a worker that does not start.",
            )
        try:
            status, reply = _exchange(
                url, "POST", f"/v2/models/{model}/infer", body, headers, deadline_s
            )
        except (OSError, http.client.HTTPException) as error:
            raise ServerError(
                f"{url} broke off during warm-up: {error!r}", hint="Look into the server's log."
            ) from None
        sent += 1
        if status != 200:
            raise ServerError(
                f"{url} answered {status} during warm-up", hint="Look into the server's log."
            )
        seen.add(reply or str(sent))
    return sent


def _exchange(
    url: str,
    method: str,
    path: str,
    body: bytes,
    headers: Mapping[str, str],
    timeout_s: float,
    access: Access = OPEN,
) -> tuple[int, str | None]:
    address = urlsplit(url)
    connection: http.client.HTTPConnection
    if address.scheme == "https":
        connection = http.client.HTTPSConnection(
            address.hostname or "", address.port or 443, timeout=timeout_s, context=access.tls()
        )
    else:
        connection = http.client.HTTPConnection(
            address.hostname or "", address.port or 80, timeout=timeout_s
        )
    try:
        connection.request(method, path, body or None, {**headers, "Connection": "close"})
        reply = connection.getresponse()
        reply.read()
        return reply.status, reply.getheader(WORKER_HEADER)
    finally:
        connection.close()
