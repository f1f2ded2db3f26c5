"""A backend under test with every model of the protocol suite."""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import tritonclient.http

from serving.deployment import Placement, Server, running
from serving.models.repository import Model, place
from tests.contract.differences import Outcome, difference, expected

PLACEMENT = Placement(cpus=(0,), usable_cpus=2)
FIRST_MODEL = "tiny"


@dataclass(frozen=True)
class Reply:
    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def outcome(self) -> Outcome:
        if self.status >= 500:
            return Outcome.SERVER_FAULT
        return Outcome.CLIENT_FAULT if self.status >= 400 else Outcome.OK

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class Served:
    """One server for all models, which loads them when they are asked for.

    Where a backend has no repository API, it is one server for each of them.
    """

    def __init__(
        self, label: str, models: Mapping[str, Model], folder: Path, stack: ExitStack
    ) -> None:
        self.label = label
        self.models = models
        self.folder = folder
        self._stack = stack
        self._servers: dict[str, Server] = {}

    def require(self, capability: str) -> None:
        """Skip the test, with the reason, where the backend is listed without ``capability``."""
        found = difference(self.label, capability)
        if found:
            pytest.skip(f"{self.label} {found.reason}")

    def has(self, capability: str) -> bool:
        return difference(self.label, capability) is None

    def expected(self, case: str) -> Outcome:
        return expected(self.label, case)

    def server_of(self, model: str) -> Server:
        """The server that has ``model``; the first one for a model that nobody has."""
        if model not in self.models:
            model = FIRST_MODEL
        if model not in self._servers:
            shared = model != FIRST_MODEL and self.has("model_repository")
            self._servers[model] = self._load(model) if shared else self._start(model)
        return self._servers[model]

    def post(
        self, model: str, *requests: tuple[bytes, Mapping[str, str]], path: str = ""
    ) -> list[Reply]:
        """The replies to ``requests`` (body, headers), one after the other on one connection."""
        address = urlsplit(self.server_of(model).url).netloc
        replies = []
        with closing(http.client.HTTPConnection(address, timeout=20)) as connection:
            for body, headers in requests:
                connection.request("POST", path or f"/v2/models/{model}/infer", body, dict(headers))
                reply = connection.getresponse()
                replies.append(Reply(reply.status, dict(reply.headers), reply.read()))
        return replies

    def _start(self, model: str) -> Server:
        logs = self.folder / model
        logs.mkdir(exist_ok=True)
        return self._stack.enter_context(
            running(
                self.label,
                self.models[model],
                PLACEMENT,
                repository=self.folder / "repository",
                logs=logs,
            )
        )

    def _load(self, model: str) -> Server:
        server = self.server_of(FIRST_MODEL)
        address = urlsplit(server.url).netloc
        with closing(tritonclient.http.InferenceServerClient(address)) as client:
            client.load_model(model)
        return server


@contextmanager
def serving(label: str, models: Mapping[str, Model], folder: Path) -> Iterator[Served]:
    """Backend ``label`` with ``models`` in its repository, stopped on leaving."""
    for model in models.values():
        place(model, folder / "repository", instances=1, intra_op_threads=1)
    with ExitStack() as stack:
        yield Served(label, models, folder, stack)
