"""A server's counters, read before and after a window, beside the load and not in its way."""

from __future__ import annotations

import http.client
import ssl
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING
from urllib.parse import quote, urlsplit

from pydantic import BaseModel, ConfigDict

from loadtest.counters import Counters, UntoldError, read_metrics, read_statistics
from loadtest.explained import ServerTimings

if TYPE_CHECKING:
    from serving.backends.base import Launch

TIMEOUT_S = 1.0
PUBLISH_S = 0.1
"""How old the figures may be that a worker of ``serving.backends.fastapi`` has published."""
AHEAD_S = 0.02
"""A reading begins this long before its window: metrics take some milliseconds of the server."""


class TimingsSource(BaseModel):
    """Where a server may tell its timings; which of them it has is found out by asking.

    Attributes:
        steps: of a pipeline, its front half and the model behind it, whose ``step_urls`` give the
            statistics of each.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    model: str
    statistics_url: str | None = None
    metrics_urls: tuple[str, ...] = ()
    steps: tuple[str, ...] = ()
    step_urls: tuple[str, ...] = ()


def source_of(launch: Launch, model: str, *steps: str) -> TimingsSource:
    """What can be asked of a server that serves ``model``, a pipeline where it has ``steps``."""
    by_http = urlsplit(launch.url).scheme in ("http", "https")
    # Of several replicas any one would answer, now this and then that.
    whole = by_http and not launch.replica_metrics_urls
    own, *others = (f"{launch.url}/v2/models/{quote(name)}/stats" for name in (model, *steps))
    return TimingsSource(
        model=model,
        statistics_url=own if whole else None,
        metrics_urls=launch.metrics_urls,
        steps=steps,
        step_urls=tuple(others) if whole else (),
    )


Bodies = Sequence[bytes]


@dataclass(frozen=True)
class _Way:
    """How a server is asked. Replies are parsed later, when there is no load to be disturbed.

    Attributes:
        lag_s: how old the figures may be.
    """

    ask: Callable[[], Bodies]
    parse: Callable[[Bodies], Counters]
    lag_s: float = 0.0


class Meter:
    """Reads one server's counters around windows, on connections of its own. Never raises.

    Attributes:
        missing: why the server cannot tell; ``None`` when it can.
    """

    def __init__(
        self, source: TimingsSource | None, headers: Mapping[str, str], ca_file: Path | None
    ) -> None:
        """Find out what the server tells; call while it has no load."""
        self.missing: str | None = None
        self._way: _Way | None = None
        self._before: Bodies | None = None
        self._why = ""
        self._reader: Thread | None = None
        if source is None:
            self.missing = "its timings were not asked for"
            return
        try:
            self._way = _first_that_works(_ways(source, headers, ca_file))
        except UntoldError as error:
            self.missing = str(error)

    def begin(self, sleep: Callable[[float], None]) -> None:
        """Read the counters of a server that has been left in peace."""
        if self._way:
            sleep(2 * self._way.lag_s)
            self._take(self._way, 0)

    def begin_under_load(self, start_ns: int) -> None:
        """Read them just before ``start_ns``, without waiting for the busy server's answer."""
        if self._way:
            at_ns = start_ns - int(AHEAD_S * 1e9)
            self._reader = Thread(target=self._take, args=(self._way, at_ns), daemon=True)
            self._reader.start()

    def end(self, sleep: Callable[[float], None]) -> tuple[ServerTimings | None, str | None]:
        """What was counted since ``begin``, or why that is not known; call when all is answered."""
        if self._way is None:
            return None, self.missing
        if self._reader:
            self._reader.join(2 * TIMEOUT_S)
            self._reader = None
        before, self._before = self._before, None
        if before is None:
            return None, f"at the window's beginning {self._why or 'it did not answer'}"
        sleep(2 * self._way.lag_s)
        try:
            later = self._way.parse(self._way.ask())
            return self._way.parse(before).until(later), None
        except UntoldError as error:
            return None, str(error)

    def _take(self, way: _Way, at_ns: int) -> None:
        time.sleep(max(at_ns - time.monotonic_ns(), 0) / 1e9)
        try:
            self._before = way.ask()
        except UntoldError as error:
            self._why = str(error)


def _ways(
    source: TimingsSource, headers: Mapping[str, str], ca_file: Path | None
) -> Sequence[_Way]:
    ways = []
    if source.statistics_url:
        ask = partial(_get_all, (source.statistics_url, *source.step_urls), headers, ca_file)
        ways.append(_Way(ask, lambda bodies: _together(map(read_statistics, bodies))))
    if source.metrics_urls:
        ask = partial(_get_all, source.metrics_urls, {}, None)
        parse = partial(_parse_metrics, (source.model, *source.steps))
        ways.append(_Way(ask, parse, PUBLISH_S))
    return ways


def _first_that_works(ways: Sequence[_Way]) -> _Way:
    """Raises UntoldError when none does."""
    reasons = []
    for way in ways:
        try:
            way.parse(way.ask())
        except UntoldError as error:
            reasons.append(str(error))
        else:
            return way
    raise UntoldError("; ".join(reasons) or "it is reached over gRPC only")


def _parse_metrics(models: Sequence[str], bodies: Bodies) -> Counters:
    texts = [body.decode("utf-8", "replace") for body in bodies]
    return _together(read_metrics(texts, model) for model in models)


def _together(found: Iterable[Counters]) -> Counters:
    own, *steps = found
    return own.with_steps(*steps) if steps else own


def _get_all(urls: Sequence[str], headers: Mapping[str, str], ca_file: Path | None) -> Bodies:
    return [_get(url, headers, ca_file) for url in urls]


def _get(url: str, headers: Mapping[str, str], ca_file: Path | None) -> bytes:
    """Raises UntoldError unless the reply is 200."""
    address = urlsplit(url)
    try:
        connection = _connect(address.scheme, address.netloc, ca_file)
        try:
            connection.request("GET", address.path, headers={**headers, "Connection": "close"})
            reply = connection.getresponse()
            body = reply.read()
        finally:
            connection.close()
    except (OSError, http.client.HTTPException) as error:
        raise UntoldError(f"{address.path} was not answered ({error!r})") from None
    if reply.status != 200:
        raise UntoldError(f"{address.path} was answered with {reply.status}")
    return body


def _connect(scheme: str, place: str, ca_file: Path | None) -> http.client.HTTPConnection:
    if scheme == "https":
        trusted = ssl.create_default_context(cafile=ca_file)
        return http.client.HTTPSConnection(place, timeout=TIMEOUT_S, context=trusted)
    return http.client.HTTPConnection(place, timeout=TIMEOUT_S)
