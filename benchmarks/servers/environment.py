"""A virtual environment for one public server: made once by pip, in the cache folder, for it alone.

What a peer depends on never meets what infersweep depends on. Every environment holds the ONNX
Runtime version and the NumPy that infersweep itself runs on, so that only the servers differ.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
import sys
import venv
from collections.abc import Callable, Sequence
from importlib.metadata import version
from pathlib import Path

from benchmarks.peers import Unavailable
from serving.models.weights import cache_folder
from serving.providers import runtime_version

_STAMP = "versions.json"


def ensure_environment(
    name: str, requirements: Sequence[str], progress: Callable[[str], None]
) -> Path:
    """Folder of an environment that holds ``requirements``; another set is another folder.

    Raises:
        Unavailable: pip could not install them, with the last thing it said.
    """
    # The plain package: on the CPU it is the same library, at a tenth of the size.
    wanted = [*requirements, f"onnxruntime=={runtime_version()}", f"numpy=={version('numpy')}"]
    key = hashlib.sha256("\n".join([sys.version, *wanted]).encode()).hexdigest()[:12]
    folder = cache_folder() / "servers" / f"{name}-{key}"
    if not (folder / _STAMP).is_file():
        progress(f"installing {', '.join(requirements)} into {folder}")
        # Scripts in it name its place, so it cannot be built elsewhere and moved.
        shutil.rmtree(folder, ignore_errors=True)
        venv.create(folder, symlinks=True)
        _pip(folder, "install", "--quiet", *wanted)
        listed = _pip(folder, "list", "--format=json")
        versions = {item["name"]: item["version"] for item in json.loads(listed)}
        (folder / _STAMP).write_text(json.dumps(versions, indent=2) + "\n", encoding="utf-8")
    return folder


def python_of(folder: Path) -> Path:
    return folder / "bin" / "python"


def versions_in(folder: Path) -> dict[str, str]:
    """Every package in the environment, as found there when it was made."""
    versions: dict[str, str] = json.loads((folder / _STAMP).read_text(encoding="utf-8"))
    return versions


def _pip(folder: Path, *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "pip", "--python", str(python_of(folder)), *arguments],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        errors = [line for line in done.stderr.splitlines() if line.startswith("ERROR")]
        raise Unavailable(f"pip {arguments[0]}: {errors[-1] if errors else 'failed'}")
    return done.stdout
