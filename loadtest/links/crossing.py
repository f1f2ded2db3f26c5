"""What can cross a link, and by which address. Pure."""

from __future__ import annotations

from urllib.parse import urlsplit

from loadtest.links.profile import LinkProfile
from serving.errors import UsageError

_TLS = ("https", "grpcs")
_PORTS = {"http": 80, "https": 443}
_NAMES_OF_THE_RELAY = ("127.0.0.1", "localhost")


def server_of(url: str) -> str:
    """``HOST:PORT`` of the server at ``url``, to which a relay connects.

    Raises:
        UsageError: requests to it cannot go through a relay.
    """
    at = urlsplit(url)
    if at.scheme in _TLS and at.hostname not in _NAMES_OF_THE_RELAY:
        raise UsageError(
            f"no link to {url}: behind the relay its certificate would be checked against "
            f"{_NAMES_OF_THE_RELAY[0]}",
            hint="Give a plain http or grpc address, or leave --link out.",
        )
    port = at.port or _PORTS.get(at.scheme)
    if not at.hostname or port is None:
        raise UsageError(f"no link to {url}: it names no port", hint="Write HOST:PORT.")
    return f"[{at.hostname}]:{port}" if ":" in at.hostname else f"{at.hostname}:{port}"


def through(url: str, relay: str) -> str:
    """The address by which requests to ``url`` go through the relay at ``HOST:PORT``.

    Of TLS the name stays, since the certificate is for it.
    """
    at = urlsplit(url)
    if at.scheme in _TLS:
        relay = f"{at.hostname}:{relay.rpartition(':')[2]}"
    return f"{at.scheme}://{relay}"


def request_time_s(profile: LinkProfile, request_bytes: int) -> float:
    """One request and an answer without length, on a link that carries nothing else."""
    return request_bytes * 8 / profile.uplink_bps + profile.round_trip_ms / 1e3


def require_in_time(profile: LinkProfile, request_bytes: int, timeout_s: float) -> None:
    """Raises UsageError where even a lone request would be given up on its way."""
    takes_s = request_time_s(profile, request_bytes)
    if takes_s > timeout_s:
        raise UsageError(
            f"one request of {request_bytes / 1e3:,.0f} kB takes {takes_s:.1f} s over "
            f"{profile.name}, {request_bytes * 8 / profile.uplink_bps:.1f} s of them on its "
            f"uplink, above --timeout {timeout_s:g}",
            hint="Raise --timeout, or choose another link or smaller requests.",
        )
