"""The server's interface as OpenAPI 3.1, from the table of its endpoints."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from serving.backends.onnxruntime.routes import ENDPOINTS, Endpoint
from serving.protocol import HEADER_LENGTH, NUMPY_TYPES

Schema = Mapping[str, Any]

_TEXT: Schema = {"type": "string"}
_COUNT: Schema = {"type": "integer", "minimum": 0}
_FREE: Schema = {"type": "object"}


def _list(items: Schema, **more: Any) -> Schema:
    return {"type": "array", "items": items, **more}


def _object(*required: str, **properties: Schema) -> Schema:
    return {"type": "object", "required": list(required), "properties": properties}


_SHAPE = _list(_COUNT)
_TENSOR = _object(
    *("name", "datatype", "shape"),
    name=_TEXT,
    datatype={"enum": list(NUMPY_TYPES)},
    shape=_SHAPE,
    data={"type": "array"},
    parameters=_FREE,
)
_DESCRIBED = _object(
    *("name", "datatype", "shape"), name=_TEXT, datatype=_TEXT, shape=_list({"type": "integer"})
)
_INFER = _object(
    "inputs",
    id=_TEXT,
    inputs=_list(_TENSOR, minItems=1),
    outputs=_list(_object("name", name=_TEXT, parameters=_FREE)),
    parameters=_FREE,
)
_REGION: Mapping[str, Schema] = {"key": _TEXT, "offset": _COUNT, "byte_size": _COUNT}
_BODIES: Mapping[str, Schema] = {
    "infer": _INFER,
    "index": _object(ready={"type": "boolean"}),
    "load": _object(parameters=_FREE),
    "register": _object("key", "byte_size", **_REGION),
}
_REPLIES: Mapping[str, Schema] = {
    "server_metadata": _object(
        *("name", "version", "extensions"), name=_TEXT, version=_TEXT, extensions=_list(_TEXT)
    ),
    "model_metadata": _object(
        *("name", "versions", "platform", "inputs", "outputs"),
        name=_TEXT,
        versions=_list(_TEXT),
        platform=_TEXT,
        inputs=_list(_DESCRIBED),
        outputs=_list(_DESCRIBED),
    ),
    "model_config": _object("name", "max_batch_size", name=_TEXT, max_batch_size=_COUNT),
    "statistics": _object("model_stats", model_stats=_list(_FREE)),
    "index": _list(_object("name", name=_TEXT, version=_TEXT, state=_TEXT, reason=_TEXT)),
    "infer": _object(
        *("model_name", "model_version", "outputs"),
        model_name=_TEXT,
        model_version=_TEXT,
        id=_TEXT,
        outputs=_list(_TENSOR),
    ),
    "regions": _list(_object("name", *_REGION, name=_TEXT, **_REGION)),
    "openapi": _object("openapi", "info", "paths", openapi=_TEXT, info=_FREE, paths=_FREE),
}
"""What comes back as JSON; other operations answer without a body, but for ``metrics``."""
_JSON, _BINARY = "application/json", "application/octet-stream"
_FAULT: Schema = {
    "description": "what was expected and what came",
    "content": {_JSON: {"schema": _object("error", error=_TEXT)}},
}
_BEARER = "bearer"


def describe_interface(title: str, version: str) -> dict[str, Any]:
    """The OpenAPI document."""
    paths: dict[str, dict[str, Any]] = {}
    for endpoint in ENDPOINTS:
        paths.setdefault(endpoint.template, {})[endpoint.method.lower()] = _operation(endpoint)
    return {
        "openapi": "3.1.0",
        "info": {"title": title, "version": version},
        "paths": paths,
        "components": {"securitySchemes": {_BEARER: {"type": "http", "scheme": "bearer"}}},
        # Either: the one who starts the server decides.
        "security": [{}, {_BEARER: []}],
    }


def _operation(endpoint: Endpoint) -> dict[str, Any]:
    described: dict[str, Any] = {
        "operationId": re.sub(r"\W+", "_", f"{endpoint.method} {endpoint.template}").lower(),
        "summary": endpoint.summary,
        "parameters": _parameters(endpoint),
        "responses": {"200": _reply(endpoint.operation), "4XX": _FAULT, "503": _FAULT},
    }
    if endpoint.open:
        described["security"] = []
    schema = _BODIES.get(endpoint.operation)
    if schema:
        described["requestBody"] = {
            "content": _content(endpoint.operation, schema),
            "required": endpoint.operation == "infer",
        }
    return described


def _content(operation: str, schema: Schema) -> Schema:
    """JSON; inferences also with binary tensors behind it."""
    content: dict[str, Schema] = {_JSON: {"schema": schema}}
    if operation == "infer":
        content[_BINARY] = {}
    return content


def _parameters(endpoint: Endpoint) -> list[Schema]:
    names = re.findall(r"{(\w+)}", endpoint.template)
    named: list[Schema] = [
        {"name": name, "in": "path", "required": True, "schema": _TEXT} for name in names
    ]
    if endpoint.operation != "infer":
        return named
    length = {
        "name": HEADER_LENGTH,
        "in": "header",
        "description": "bytes of the JSON part of a body that goes on with binary tensors",
        "schema": _COUNT,
    }
    return [*named, length]


def _reply(operation: str) -> Schema:
    if operation == "metrics":
        return {"description": "Prometheus text", "content": {"text/plain": {"schema": _TEXT}}}
    schema = _REPLIES.get(operation)
    if schema is None:
        return {"description": "done"}
    return {"description": "as asked", "content": _content(operation, schema)}
