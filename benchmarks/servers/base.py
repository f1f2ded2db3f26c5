"""A public inference server as it is measured: installed, started, and asked until it answers."""

from __future__ import annotations

import http.client
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from benchmarks.cases import Case
from benchmarks.load import SERVER_CPU
from benchmarks.peers import Target, Unavailable
from benchmarks.servers.environment import ensure_environment, python_of, versions_in
from serving.errors import ServerError
from serving.process import RunningProcess, free_port, wait_until
from serving.protocol import (
    HEADER_LENGTH,
    Array,
    ProtocolError,
    Tensor,
    decode_response,
    encode_request,
    parse_header_length,
)
from serving.tolerance import Tolerance

_APPS = Path(__file__).with_name("apps")
_READY_WITHIN_S = 90.0
_ASK_TIMEOUT_S = 5.0
_POLL_S = 0.2

Reply = tuple[bytes, str | None]
"""A body, and the length of its JSON part as its header states it."""


@dataclass(frozen=True)
class Wire:
    """How one float32 row travels.

    Attributes:
        encode: from the input's name and row to a body and its headers.
        decode: from a body and its ``Inference-Header-Content-Length`` to the answer's values.
            Raises ValueError for a body that holds none.
    """

    name: str
    encode: Callable[[str, Array], tuple[bytes, Mapping[str, str]]]
    decode: Callable[[bytes, str | None], Array]


def _v2(name: str, row: Array, *, binary: bool) -> tuple[bytes, Mapping[str, str]]:
    body, length = encode_request([Tensor.of(name, row)], binary=binary)
    if length is None:
        return body, {"Content-Type": "application/json"}
    return body, {"Content-Type": "application/octet-stream", HEADER_LENGTH: str(length)}


def _values(body: bytes, header_length: str | None) -> Array:
    (output,) = decode_response(body, parse_header_length(header_length)).values()
    return output.array


RAW = Wire(
    "raw bytes",
    lambda _, row: (row.tobytes(), {"Content-Type": "application/octet-stream"}),
    lambda body, _: np.frombuffer(body, np.float32),
)
V2_BINARY = Wire("v2 binary", lambda name, row: _v2(name, row, binary=True), _values)
V2_JSON = Wire("v2 JSON", lambda name, row: _v2(name, row, binary=False), _values)


@dataclass(frozen=True)
class PeerServer:
    """One server as its own manual runs it on one core, at the fastest that was found here.

    Attributes:
        name: as tables print it.
        package: its environment, and its file among the apps.
        requirements: pinned, as pip takes them.
        path: where requests go.
        batch: most requests that it joins; 1 where it joins none.
        environment: variables that its manual names.
    """

    name: str
    package: str
    requirements: tuple[str, ...]
    path: str
    wire: Wire = RAW
    batch: int = 1
    environment: Mapping[str, str] = field(default_factory=dict)

    def target(self, case: Case, url: str) -> PeerTarget:
        ((name, row),) = case.reference.samples[0].inputs.items()
        body, headers = self.wire.encode(name, row)
        return PeerTarget(url, case.model.name, body, headers, self.path)

    def is_right(self, case: Case, body: bytes, header_length: str | None) -> bool:
        """Whether ``body`` holds what the reference session answers to the request."""
        (expected,) = case.reference.answers[0].values()
        try:
            got = self.wire.decode(body, header_length).ravel()
        except (ValueError, ProtocolError):
            return False
        limits = Tolerance()
        return got.size == expected.size and np.allclose(
            got, expected.ravel(), limits.relative, limits.absolute
        )


@dataclass(frozen=True)
class PeerTarget(Target):
    """A request whose path is the server's own."""

    path: str

    @property
    def infer_url(self) -> str:
        return f"{self.url}{self.path}"


@contextmanager
def running_peer(
    peer: PeerServer, case: Case, progress: Callable[[str], None]
) -> Iterator[tuple[PeerTarget, str]]:
    """The request to send, and the version that answers it, once the answer has been found right.

    Raises:
        Unavailable: it cannot be installed or started here, or answers something else.
    """
    installed = ensure_environment(peer.package, peer.requirements, progress)
    port = free_port()
    target = peer.target(case, f"http://127.0.0.1:{port}")
    with (
        # A short name: Ray keeps sockets deep below, whose paths may have 107 bytes.
        TemporaryDirectory(prefix="peer-") as folder,
        RunningProcess(
            [str(python_of(installed)), str(_APPS / f"{peer.package}_app.py")],
            cpus=(SERVER_CPU,),
            env={
                **peer.environment,
                "PEER_MODEL": str(case.model.file),
                "PEER_PORT": str(port),
                "PEER_BATCH": str(peer.batch),
                "PYTHONPATH": "",
                "TMPDIR": folder,
            },
            log=Path(folder) / "log",
            cwd=Path(folder),
        ) as process,
    ):
        try:
            wait_until(
                lambda: _ask(target) is not None,
                deadline_s=_READY_WITHIN_S,
                process=process,
                what=peer.name,
                poll_s=_POLL_S,
            )
        except ServerError as error:
            raise Unavailable(f"{error.what}: {process.log_tail(1)}") from None
        reply = _ask(target)
        if reply is None or not peer.is_right(case, *reply):
            raise Unavailable(f"{peer.name} answers something else than the reference session")
        distribution = peer.requirements[0].partition("==")[0].partition("[")[0]
        yield target, versions_in(installed)[distribution]


def _ask(target: Target) -> Reply | None:
    """What the server answers; ``None`` while it refuses or does not listen."""
    request = urllib.request.Request(target.infer_url, target.body, dict(target.headers))
    try:
        with urllib.request.urlopen(request, timeout=_ASK_TIMEOUT_S) as reply:
            return reply.read(), reply.headers.get(HEADER_LENGTH)
    except (OSError, http.client.HTTPException):
        return None
