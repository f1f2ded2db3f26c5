"""A server that the user already runs, at any address that speaks the protocol."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from urllib.parse import urlsplit

from serving.backends.base import Launch, ServePlan
from serving.errors import UsageError

SCHEMES = ("http", "https", "grpc", "grpcs")


@dataclass(frozen=True)
class RemoteBackend:
    name: str = "remote"
    summary: str = "any v2 server that already runs: remote:http://HOST:PORT, also https and grpc"
    options: Mapping[str, str] = field(
        default_factory=lambda: MappingProxyType({"http://HOST:PORT": "the server's address"})
    )
    answers: bool = True

    def launch(self, plan: ServePlan) -> Launch:
        """Describe the running server; there is nothing to start.

        Raises:
            UsageError: no address, or one that is neither HTTP nor gRPC.
        """
        address = urlsplit(plan.option)
        if address.scheme not in SCHEMES or not address.hostname:
            raise UsageError(
                f"{plan.label!r} names no address",
                hint="Write for example remote:http://127.0.0.1:8000.",
            )
        return Launch(
            label=plan.label,
            url=plan.option.rstrip("/"),
            facts={"server": "already running, its settings are unknown"},
            ready_within_s=10.0,
        )


BACKEND = RemoteBackend()
