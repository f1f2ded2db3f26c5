"""Another malloc in place of the C library's, loaded before a server starts.

It is the launcher of a deployment that decides this, and not the server, so no advice follows.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from ctypes.util import find_library
from dataclasses import replace
from functools import partial
from pathlib import Path

from loadtest.playbook.experiment import Experiment, Lab
from loadtest.playbook.own import launched
from loadtest.playbook.served import OwnServer, Served
from serving.backends.base import Launch, ServePlan
from serving.backends.registry import resolve
from serving.errors import MachineError
from serving.models.repository import Model

_BACKEND = "onnxruntime"
_LIBRARIES = ("jemalloc", "tcmalloc_minimal", "tcmalloc", "mimalloc")
_VARIABLE = "LD_PRELOAD"


def _found() -> dict[str, str]:
    """Name to the file that the loader knows it by."""
    named = {name: find_library(name) for name in _LIBRARIES}
    return {name: file for name, file in named.items() if file}


def _missing(_lab: Lab) -> str:
    return "" if _found() else f"none of {', '.join(_LIBRARIES)} is installed"


def _preloading(library: str, plan: ServePlan) -> Launch:
    launch = resolve(_BACKEND)[0].launch(plan)
    preloaded = " ".join(filter(None, (library, os.environ.get(_VARIABLE, ""))))
    return replace(launch, env={**launch.env, **({_VARIABLE: preloaded} if preloaded else {})})


@contextmanager
def _server(library: str, lab: Lab, model: Model, folder: Path) -> Iterator[OwnServer]:
    with launched(_BACKEND, partial(_preloading, library))(lab, model, folder) as server:
        _require_loaded(library, server.process.pid)
        yield server


def _require_loaded(library: str, pid: int) -> None:
    """The loader only warns of what it cannot load.

    Raises:
        MachineError: it is not in the process.
    """
    if library not in Path(f"/proc/{pid}/maps").read_text(encoding="utf-8"):
        raise MachineError(
            f"{library} was not loaded into the server",
            hint="The loader has the reason in the server's log.",
        )


def _arms(_lab: Lab) -> tuple[Served, ...]:
    others = [
        Served(name, f"{file} in its place", own=partial(_server, file))
        for name, file in _found().items()
    ]
    return (Served("default", "malloc of the C library", own=partial(_server, "")), *others)


EXPERIMENT = Experiment(
    name="allocator",
    title="Another malloc",
    claim="A server is faster with jemalloc or tcmalloc than with the C library's malloc.",
    usual=(1.05, 1.3),
    page="tuning-knobs.md",
    arms=_arms,
    missing=_missing,
)
