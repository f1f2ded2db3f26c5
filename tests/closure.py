"""Imports modules while only the packages of one requirements file, and theirs, can be imported.

Run as ``python -m tests.closure REQUIREMENTS MODULE ...``; ONNX Runtime is always among them.
"""

from __future__ import annotations

import importlib
import subprocess
import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.metadata import PackageNotFoundError, packages_distributions, requires
from pathlib import Path
from types import ModuleType

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]
_RUNTIME = "onnxruntime-gpu"


def import_only(requirements: Path, modules: Sequence[str]) -> str:
    """What kept one of ``modules`` from being imported; empty when nothing did."""
    told = subprocess.run(
        [sys.executable, "-m", "tests.closure", str(requirements), *modules],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    return told.stderr.strip() if told.returncode else ""


def closure(requirements: Path) -> set[str]:
    """The packages that the file names, and all that they require here."""
    named = [line for line in requirements.read_text().splitlines() if line and line[0] not in "#-"]
    waiting = [Requirement(line) for line in (*named, _RUNTIME)]
    found: set[str] = set()
    seen: set[str] = set()
    while waiting:
        one = waiting.pop()
        if str(one) in seen:
            continue
        seen.add(str(one))
        found.add(canonicalize_name(one.name))
        for text in _requires(one.name):
            inner = Requirement(text)
            extras = one.extras or {""}
            if inner.marker is None or any(inner.marker.evaluate({"extra": e}) for e in extras):
                waiting.append(inner)
    return found


def _requires(name: str) -> list[str]:
    try:
        return requires(name) or []
    except PackageNotFoundError:
        return []


class Absent(MetaPathFinder):
    """Finds nothing of the packages that are installed here and not in ``allowed``."""

    def __init__(self, allowed: set[str]) -> None:
        self._known = packages_distributions()
        self._allowed = allowed

    def find_spec(
        self, name: str, _path: object = None, _target: ModuleType | None = None
    ) -> ModuleSpec | None:
        owners = {canonicalize_name(owner) for owner in self._known.get(name.partition(".")[0], ())}
        if owners and not owners & (self._allowed | {"infersweep", "setuptools", "pip"}):
            raise ModuleNotFoundError(f"No module named {name!r} in the image", name=name)
        return None


if __name__ == "__main__":
    listed, *wanted = sys.argv[1:]
    sys.meta_path.insert(0, Absent(closure(Path(listed))))
    if "locust" in wanted:
        # Before anything else, since it patches the process.
        importlib.import_module("locust")
    for module in wanted:
        importlib.import_module(module)
