"""The registry: one line for each way to serve a model."""

from __future__ import annotations

from collections.abc import Mapping

from serving.backends import null, remote, triton
from serving.backends.base import Backend
from serving.backends.fastapi import launch as fastapi
from serving.backends.onnxruntime import launch as onnxruntime
from serving.errors import UsageError

BACKENDS: Mapping[str, Backend] = {
    backend.name: backend
    for backend in (
        triton.BACKEND,
        onnxruntime.BACKEND,
        fastapi.BACKEND,
        null.BACKEND,
        remote.BACKEND,
    )
}


def resolve(label: str) -> tuple[Backend, str]:
    """The backend that ``label`` names, and the option behind its colon.

    Raises:
        UsageError: the name is unknown, or takes no option.
    """
    name, _, option = label.partition(":")
    if name not in BACKENDS:
        raise UsageError(f"there is no backend {name!r}", hint=f"Backends: {', '.join(BACKENDS)}.")
    backend = BACKENDS[name]
    if option and not backend.options:
        raise UsageError(f"backend {name!r} takes no option {option!r}", hint=f"Write {name}.")
    return backend, option
