"""The FastAPI baseline with the usual mistake: the model runs inside the coroutine."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fastapi import FastAPI

from serving.backends.fastapi import app


class _AtOnce:
    """Stands for ``anyio.to_thread``; nothing else on the event loop moves meanwhile."""

    @staticmethod
    async def run_sync(function: Callable[..., Any], *arguments: Any, **_options: Any) -> Any:
        return function(*arguments)


def create_app() -> FastAPI:
    """What gunicorn's workers run; settings are those of the baseline."""
    vars(app)["to_thread"] = _AtOnce
    return app.create_app()
