"""Libraries that only some formats need, and that are installed only when asked for."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from serving.errors import MachineError

EXTRA = "export"


def needed(module: str, what: str) -> Any:
    """The module; ``what`` needs it.

    Raises:
        MachineError: it is not installed.
    """
    try:
        return import_module(module)
    except ImportError as error:
        raise MachineError(
            f"{what} needs {module.partition('.')[0]}: {error}",
            hint=f"Install it: pip install 'infersweep[{EXTRA}]'.",
        ) from None
