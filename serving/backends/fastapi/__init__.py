"""The baseline that most teams start with: FastAPI on gunicorn, one session per worker."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from serving.backends.fastapi.launch import FastApiBackend


def __getattr__(name: str) -> FastApiBackend:
    """``BACKEND``, imported when it is asked for.

    gunicorn's arbiter forks its workers from what it has loaded itself, so that must be little.
    """
    if name != "BACKEND":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from serving.backends.fastapi.launch import BACKEND  # noqa: PLC0415

    return BACKEND
