"""The server's interface as OpenAPI 3.1, from the table of its endpoints."""

from __future__ import annotations

import re
from typing import Any

from serving.backends.onnxruntime.routes import ENDPOINTS, Endpoint
from serving.protocol import NUMPY_TYPES

_TENSOR: dict[str, Any] = {
    "type": "object",
    "required": ["name", "datatype", "shape"],
    "properties": {
        "name": {"type": "string"},
        "datatype": {"enum": list(NUMPY_TYPES)},
        "shape": {"type": "array", "items": {"type": "integer", "minimum": 0}},
        "data": {"type": "array"},
        "parameters": {"type": "object"},
    },
}
_BODIES: dict[str, dict[str, Any]] = {
    "infer": {
        "type": "object",
        "required": ["inputs"],
        "properties": {
            "id": {"type": "string"},
            "inputs": {"type": "array", "minItems": 1, "items": _TENSOR},
            "outputs": {
                "type": "array",
                "items": {
                    "type": "object",
                    "required": ["name"],
                    "properties": {"name": {"type": "string"}, "parameters": {"type": "object"}},
                },
            },
            "parameters": {"type": "object"},
        },
    },
    "index": {"type": "object", "properties": {"ready": {"type": "boolean"}}},
    "load": {"type": "object", "properties": {"parameters": {"type": "object"}}},
    "register": {
        "type": "object",
        "required": ["key", "byte_size"],
        "properties": {
            "key": {"type": "string"},
            "offset": {"type": "integer", "minimum": 0},
            "byte_size": {"type": "integer", "minimum": 0},
        },
    },
}
_FAULT = {
    "description": "what was expected and what came",
    "content": {
        "application/json": {
            "schema": {
                "type": "object",
                "required": ["error"],
                "properties": {"error": {"type": "string"}},
            }
        }
    },
}


def describe_interface(title: str, version: str) -> dict[str, Any]:
    """The OpenAPI document."""
    paths: dict[str, dict[str, Any]] = {}
    for endpoint in ENDPOINTS:
        paths.setdefault(endpoint.template, {})[endpoint.method.lower()] = _operation(endpoint)
    return {
        "openapi": "3.1.0",
        "info": {"title": title, "version": version},
        "paths": paths,
    }


def _operation(endpoint: Endpoint) -> dict[str, Any]:
    names = re.findall(r"{(\w+)}", endpoint.template)
    described: dict[str, Any] = {
        "operationId": re.sub(r"\W+", "_", f"{endpoint.method} {endpoint.template}").lower(),
        "summary": endpoint.summary,
        "parameters": [
            {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
            for name in names
        ],
        "responses": {"200": {"description": "as asked"}, "4XX": _FAULT, "503": _FAULT},
    }
    body = _BODIES.get(endpoint.operation)
    if body:
        content = {"application/json": {"schema": body}}
        described["requestBody"] = {"content": content, "required": endpoint.operation == "infer"}
    return described
