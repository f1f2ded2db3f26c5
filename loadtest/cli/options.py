"""Options that several commands share, and how their text becomes values."""

from __future__ import annotations

import math
import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Annotated

import typer

from loadtest.links.crossing import server_of
from loadtest.links.profile import NAMED, link_profile
from serving.backends import remote
from serving.backends.registry import resolve
from serving.errors import UsageError
from serving.host import CpuSplit, cpu_budget, parse_cpus, split_cpus
from serving.models.repository import DEFAULT_ROOT

ModelOption = Annotated[str, typer.Option("--model", "-m", help="name in the model repository")]
RepositoryOption = Annotated[
    Path, typer.Option("--repository", help="model repository in Triton's layout")
]
SloOption = Annotated[
    str | None, typer.Option("--slo", help="response time objective, such as 50ms")
]
MetricsPortOption = Annotated[
    int | None,
    typer.Option(help="port where the run is published to Prometheus [default: a free one]"),
]
TimeoutOption = Annotated[float, typer.Option(help="seconds before a request is given up")]
ServerCpusOption = Annotated[str | None, typer.Option(help="such as 0-2 [default: all but one]")]
ClientCpusOption = Annotated[str | None, typer.Option(help="such as 3 [default: the last]")]
OutOption = Annotated[
    Path | None, typer.Option(help="results folder; an unfinished run there is resumed")
]
LinkOption = Annotated[
    str | None,
    typer.Option(help=f"send the load over one of {', '.join(NAMED)}, or a TOML or JSON file"),
]
LinkPerConnectionOption = Annotated[
    bool,
    typer.Option(
        "--link-per-connection",
        help="each connection has a link of its own, as cameras with a modem each do",
    ),
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


def parse_link(text: str | None, labels: Sequence[str], *, per_connection: bool) -> str | None:
    """The link itself, if there is such a one and the load of these backends can cross it.

    Raises:
        UsageError: it cannot be, or a backend cannot be reached through a relay.
    """
    if text is None:
        if per_connection:
            raise UsageError(
                "--link-per-connection has no link", hint=f"Add --link {next(iter(NAMED))}."
            )
        return None
    link_profile(text)
    for label in labels:
        backend, address = resolve(label)
        if backend is remote.BACKEND:
            server_of(address)
    return text


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


def parse_levels(text: str) -> tuple[float, ...]:
    """Numbers above 0 from a comma-separated list.

    Raises:
        UsageError: the text is no such list.
    """
    try:
        levels = tuple(float(part) for part in text.split(","))
    except ValueError:
        levels = ()
    if not levels or not all(0 < n < math.inf for n in levels) or len(set(levels)) != len(levels):
        raise UsageError(
            f"--levels {text!r} is not a list of different numbers above 0",
            hint="Write for example 50,100.",
        )
    return levels


def parse_parameters(items: Sequence[str]) -> dict[str, str]:
    """``NAME=VALUE`` items by name.

    Raises:
        UsageError: an item has no name or no equals sign, or a name stands there twice.
    """
    found: dict[str, str] = {}
    for item in items:
        name, equals, value = item.partition("=")
        if not name or not equals or name in found:
            raise UsageError(f"--parameter {item!r}", hint="Write NAME=VALUE, each name once.")
        found[name] = value
    return found


def parse_headers(items: Sequence[str]) -> dict[str, str]:
    """``Name: value`` items by name.

    Raises:
        UsageError: an item is no header.
    """
    found = {}
    for item in items:
        name, colon, value = item.partition(":")
        token = name.replace("-", "").replace("_", "")
        if not colon or not token.isalnum() or not token.isascii() or "\n" in value:
            # The value may be a secret, so it is not shown.
            raise UsageError(f"--header {name[:40]!r}", hint="Write 'Name: value'.")
        found[name] = value.strip()
    return found


def parse_share(text: str | None, option: str) -> float | None:
    """``5%`` or ``0.05`` as 0.05.

    Raises:
        UsageError: it is not between 0 and 1.
    """
    if text is None:
        return None
    try:
        share = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    except ValueError:
        share = 0.0
    if not 0 < share < 1:
        raise UsageError(f"{option} is {text!r}", hint="Write for example 5%.")
    return share


_UNITS_MS = {"us": 1e-3, "ms": 1.0, "s": 1e3}


def parse_slo(text: str | None) -> float | None:
    """``50ms``, ``0.2s`` or ``800us`` in milliseconds.

    Raises:
        UsageError: it is no time above 0 with a unit.
    """
    return None if text is None else parse_time_ms(text, "--slo")


def parse_time_ms(text: str, option: str) -> float:
    """The same of an option that is given.

    Raises:
        UsageError: it is no time above 0 with a unit.
    """
    number = text.strip().rstrip("mus")
    unit = text.strip().removeprefix(number)
    try:
        found = float(number) * _UNITS_MS[unit]
    except (ValueError, KeyError):
        found = 0.0
    if not 0 < found < math.inf:
        raise UsageError(f"{option} {text!r} is no time", hint="Write for example 50ms or 0.2s.")
    return found


def one_of(text: str, words: Sequence[str], option: str) -> str:
    """Raises UsageError when ``text`` is none of ``words``."""
    if text in words:
        return text
    raise UsageError(f"{option} is {text!r}", hint=f"Choose {', '.join(words)}.")


def parse_address(text: str, default_port: int) -> tuple[str, int]:
    """``HOST`` or ``HOST:PORT``.

    Raises:
        UsageError: the port is no number.
    """
    host, colon, port = text.rpartition(":") if ":" in text else (text, "", "")
    if not host or (colon and not (port.isdecimal() and 0 < int(port) < 65536)):
        raise UsageError(f"{text!r} is no address", hint="Write HOST or HOST:PORT.")
    return host, int(port) if colon else default_port


def split_of(server_cpus: str | None, client_cpus: str | None, *, clients: int = 1) -> CpuSplit:
    """Which CPUs serve and which send.

    Raises:
        UsageError: a list is malformed, or names a CPU that this process may not use.
    """
    budget = cpu_budget()
    server = parse_cpus(server_cpus) if server_cpus else None
    client = parse_cpus(client_cpus) if client_cpus else None
    if client is None and clients > 1:
        client = budget.ids[: budget.usable][-clients:]
    return split_cpus(budget, server, client)


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
