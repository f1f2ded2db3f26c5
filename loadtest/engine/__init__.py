"""Load engines, and which one speaks to an address."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import urlsplit

from loadtest.engine.base import Engine, Target
from loadtest.engine.native import NativeEngine
from serving.backends.remote import require_address
from serving.errors import UsageError

__all__ = ["ENGINES", "Engine", "Target", "engine_for", "open_engine"]

ENGINES = ("native", "python")


def engine_for(url: str, wanted: str | None = None) -> str:
    """The engine for ``url``: native for plain HTTP, unless ``wanted`` names one.

    Raises:
        UsageError: an unknown engine or scheme, or the native engine for what it cannot speak.
    """
    require_address(url)
    scheme = urlsplit(url).scheme
    if wanted is not None and wanted not in ENGINES:
        raise UsageError(f"there is no engine {wanted!r}", hint=f"Choose {' or '.join(ENGINES)}.")
    if wanted == "native" and scheme != "http":
        raise UsageError(
            f"the native engine does not speak {scheme}", hint="Leave --engine out, or use http."
        )
    return wanted or ("native" if scheme == "http" else "python")


def open_engine(name: str, target: Target, ca_file: Path | None = None) -> Engine:
    """Raises MachineError when the native engine cannot be compiled."""
    if name == "native":
        return NativeEngine(target)
    # Imported here, since it brings gRPC and gevent, which the native engine does not need.
    from loadtest.engine.python import PythonEngine  # noqa: PLC0415

    return PythonEngine(target, ca_file)
