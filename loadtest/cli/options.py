"""Options that several commands share, and how their text becomes values."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Annotated

import typer

from serving.backends import resolve
from serving.errors import UsageError
from serving.models.repository import DEFAULT_ROOT

ModelOption = Annotated[str, typer.Option("--model", "-m", help="name in the model repository")]
RepositoryOption = Annotated[
    Path, typer.Option("--repository", help="model repository in Triton's layout")
]
DEFAULT_REPOSITORY = DEFAULT_ROOT
DEFAULT_BACKENDS = "triton,onnxruntime,fastapi"


def parse_backends(text: str) -> tuple[str, ...]:
    """Labels from a comma-separated list, each of a known backend.

    Raises:
        UsageError: a name is unknown, or one stands there twice.
    """
    labels = tuple(part.strip() for part in text.split(",") if part.strip())
    if not labels:
        raise UsageError("--backends names none", hint=f"Write for example {DEFAULT_BACKENDS}.")
    if len(set(labels)) != len(labels):
        raise UsageError(f"--backends {text} names one twice", hint="Name each once.")
    for label in labels:
        resolve(label)
    return labels


def parse_counts(text: str, option: str) -> tuple[int, ...]:
    """Whole numbers of 1 or more from a comma-separated list.

    Raises:
        UsageError: the text is no such list.
    """
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isdecimal() and int(part) > 0 for part in parts) or len(set(parts)) != len(
        parts
    ):
        raise UsageError(
            f"{option} {text!r} is not a list of different whole numbers above 0",
            hint="Write for example 1,2,4,8.",
        )
    return tuple(int(part) for part in parts)


def require_positive(value: float, option: str) -> float:
    """Raises UsageError when ``value`` is not above 0."""
    if not value > 0:
        raise UsageError(f"{option} is {value:g}", hint="Give a number above 0.")
    return value


@contextmanager
def interrupt_on_sigterm() -> Iterator[None]:
    """Let SIGTERM end a command as Ctrl-C does: servers stopped, results kept."""

    def interrupt(_signum: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    previous = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, previous)
