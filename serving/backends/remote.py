"""A server that the user already runs, at any address that speaks the protocol."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from urllib.parse import urlsplit

from serving.backends.base import Launch, ServePlan
from serving.errors import UsageError

SCHEMES = ("http", "https", "grpc", "grpcs")


def require_address(url: str) -> None:
    """Raises UsageError unless ``url`` is scheme, host and port of what we can speak to."""
    address = urlsplit(url)
    more = address.path.strip("/") or address.query
    if address.scheme not in SCHEMES or not address.hostname or more:
        raise UsageError(
            f"{url!r} is no address of a v2 server",
            hint=f"Write {', '.join(f'{s}://' for s in SCHEMES)} with host and port, and no path.",
        )


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
        require_address(plan.option)
        return Launch(
            label=plan.label,
            url=plan.option.rstrip("/"),
            facts={"server": "already running, its settings are unknown"},
            ready_within_s=10.0,
        )


BACKEND = RemoteBackend()
