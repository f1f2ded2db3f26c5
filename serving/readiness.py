"""When a server may be called ready: it says so, its model says so, every worker has answered."""

from __future__ import annotations

import http.client
import time
from urllib.parse import urlsplit

from serving.errors import ServerError
from serving.process import RunningProcess, wait_until

WORKER_HEADER = "X-Infersweep-Worker"
"""Names the worker process in each reply of a server that has several."""


def get_status(url: str, path: str, timeout_s: float = 2.0) -> int | None:
    """HTTP status of a GET, ``None`` when nothing answers."""
    try:
        return _exchange(url, "GET", path, b"", {}, timeout_s)[0]
    except (OSError, http.client.HTTPException):
        return None


def is_ready(url: str, model: str) -> bool:
    """Whether the server and the model both say that they are ready."""
    return (
        get_status(url, "/v2/health/ready") == 200
        and get_status(url, f"/v2/models/{model}/ready") == 200
    )


def wait_ready(
    url: str, model: str, *, deadline_s: float, process: RunningProcess | None, label: str
) -> float:
    """Wait for readiness; returns the seconds it took.

    Raises:
        ServerError: the process died, or the deadline passed; with the end of its log.
    """
    return wait_until(
        lambda: is_ready(url, model),
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
    url: str, method: str, path: str, body: bytes, headers: dict[str, str], timeout_s: float
) -> tuple[int, str | None]:
    address = urlsplit(url)
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
