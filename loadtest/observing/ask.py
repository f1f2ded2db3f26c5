"""Questions to a Prometheus server over its HTTP API.

Source: https://prometheus.io/docs/prometheus/latest/querying/api.
"""

from __future__ import annotations

import json
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from serving.errors import ServerError
from serving.readiness import get_status


@dataclass(frozen=True)
class Series:
    """Attributes: ``points`` are (Unix time in s, value), oldest first."""

    labels: Mapping[str, str]
    points: tuple[tuple[float, float], ...]

    @property
    def last(self) -> float:
        return self.points[-1][1]


@dataclass(frozen=True)
class Prometheus:
    """A server at ``url``, such as ``http://127.0.0.1:9090``. Questions may raise ServerError."""

    url: str
    timeout_s: float = 10.0

    def ready(self) -> bool:
        return get_status(self.url, "/-/ready", self.timeout_s) == 200

    def at(self, expr: str, time_s: float) -> list[Series]:
        """An instant query."""
        found = self._post("query", {"query": expr, "time": time_s})
        return [_series(one["metric"], [one["value"]]) for one in _vector(found)]

    def over(self, expr: str, start_s: float, end_s: float, step_s: float) -> list[Series]:
        """A range query; both ends are included."""
        asked = {"query": expr, "start": start_s, "end": end_s, "step": step_s}
        found = self._post("query_range", asked)
        return [_series(one["metric"], one["values"]) for one in found["result"]]

    def label_values(self, label: str, match: str, start_s: float, end_s: float) -> list[str]:
        """Values of ``label`` among the series that ``match`` selects."""
        asked = {"match[]": match, "start": start_s, "end": end_s}
        query = urllib.parse.urlencode(asked)
        return [str(value) for value in self._ask(f"label/{label}/values?{query}", None)]

    def _post(self, path: str, asked: Mapping[str, Any]) -> Any:
        return self._ask(path, urllib.parse.urlencode(asked).encode())

    def _ask(self, path: str, body: bytes | None) -> Any:
        try:
            with urllib.request.urlopen(
                f"{self.url}/api/v1/{path}", body, timeout=self.timeout_s
            ) as reply:
                return json.load(reply)["data"]
        except urllib.error.HTTPError as error:
            raise ServerError(
                f"Prometheus at {self.url} refused a query: {_reason(error)}",
                hint="The query, or the version of Prometheus, is not what was expected.",
            ) from None
        except (OSError, ValueError, KeyError) as error:
            raise ServerError(
                f"Prometheus at {self.url} does not answer: {error}",
                hint="Look whether it runs, and whether another program has its port.",
            ) from None


def _vector(found: Mapping[str, Any]) -> list[dict[str, Any]]:
    """A scalar is a vector of one series without labels."""
    if found["resultType"] == "scalar":
        return [{"metric": {}, "value": found["result"]}]
    return list(found["result"])


def _series(labels: Mapping[str, str], values: list[list[Any]]) -> Series:
    return Series(labels, tuple((float(at), float(value)) for at, value in values))


def _reason(error: urllib.error.HTTPError) -> str:
    try:
        return str(json.load(error)["error"])
    except (OSError, ValueError, KeyError, TypeError):
        return f"HTTP {error.code}"
