"""Every address of the server in one table, and the way from a path to its operation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from serving.backends.onnxruntime.http import Reply, fault


@dataclass(frozen=True)
class Endpoint:
    """Attributes: ``template`` has ``{name}`` for a part that varies; GET answers HEAD too.

    ``open`` to clients without the token.
    """

    method: str
    template: str
    operation: str
    summary: str
    open: bool = False


@dataclass(frozen=True)
class Route:
    """An endpoint and what stands in its path; both are empty where the path names none."""

    endpoint: Endpoint
    model: str = ""
    version: str = ""
    region: str | None = None


_MODEL = "/v2/models/{model}"
_VERSION = "/v2/models/{model}/versions/{version}"
_REGION = "/v2/systemsharedmemory/region/{region}"


def _of_model(method: str, rest: str, operation: str, summary: str) -> tuple[Endpoint, Endpoint]:
    return (
        Endpoint(method, _MODEL + rest, operation, summary),
        Endpoint(method, _VERSION + rest, operation, summary),
    )


ENDPOINTS = (
    Endpoint("GET", "/v2/health/live", "live", "Is the server there?", open=True),
    Endpoint("GET", "/v2/health/ready", "ready", "Is all that was asked for loaded?", open=True),
    Endpoint("GET", "/v2", "server_metadata", "Name, version, extensions"),
    # Before the models, or it would be one of them.
    Endpoint("GET", "/v2/models/stats", "statistics", "Statistics of all models"),
    *_of_model("GET", "", "model_metadata", "Inputs and outputs as they travel"),
    *_of_model("GET", "/ready", "model_ready", "Is the model loaded?"),
    *_of_model("GET", "/config", "model_config", "config.pbtxt as JSON"),
    *_of_model("GET", "/stats", "statistics", "Requests, batches and phases so far"),
    *_of_model("POST", "/infer", "infer", "Inference, JSON or with binary tensors"),
    Endpoint("POST", "/v2/repository/index", "index", "Models of the repository"),
    Endpoint("POST", "/v2/repository/models/{model}/load", "load", "Load or reload a model"),
    Endpoint("POST", "/v2/repository/models/{model}/unload", "unload", "Unload a model"),
    Endpoint("GET", "/v2/systemsharedmemory/status", "regions", "Registered regions"),
    Endpoint("GET", f"{_REGION}/status", "regions", "One registered region"),
    Endpoint("POST", f"{_REGION}/register", "register", "Register a region"),
    Endpoint("POST", f"{_REGION}/unregister", "unregister", "Unregister a region"),
    Endpoint("POST", "/v2/systemsharedmemory/unregister", "unregister", "Unregister all regions"),
    Endpoint("GET", "/metrics", "metrics", "Prometheus metrics"),
    Endpoint("GET", "/openapi.json", "openapi", "This interface, described"),
)


def find_route(method: str, path: Sequence[str], authorized: bool) -> Route | Reply:
    """What answers ``method`` at the parts of ``path``; a refusal when nothing does."""
    allowed = []
    for endpoint in ENDPOINTS:
        found = _match(endpoint, path)
        if found is None:
            continue
        if method == endpoint.method or (method, endpoint.method) == ("HEAD", "GET"):
            if authorized or endpoint.open:
                return Route(endpoint, **found)
            return fault(401, "a bearer token is needed", ("www-authenticate", "Bearer"))
        allowed.append(endpoint.method)
    if allowed:
        verb = allowed[0]
        return fault(405, f"{'/'.join(path)} takes {verb}, not {method}", ("allow", verb))
    return fault(404, f"there is nothing at {'/'.join(path)}")


def _match(endpoint: Endpoint, parts: Sequence[str]) -> Mapping[str, str] | None:
    names = endpoint.template.split("/")
    if len(names) != len(parts):
        return None
    found = {}
    for name, part in zip(names, parts, strict=True):
        if name.startswith("{") and part:
            found[name.strip("{}")] = part
        elif name != part:
            return None
    return found
