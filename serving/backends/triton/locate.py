"""Which Triton serves: the user's own, an installed one, the one in the wheel, the container."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from serving.backends.triton.wheel import wheel_obstacle
from serving.errors import MachineError

CHOICE_VARIABLE = "INFERSWEEP_TRITON"
PROGRAM = "tritonserver"
USUAL_PLACE = Path("/opt/tritonserver/bin/tritonserver")
_DOCKER_ANSWERS_WITHIN_S = 10.0


class Source(Enum):
    """Where a Triton comes from; the value is the word that records show."""

    GIVEN = f"path in {CHOICE_VARIABLE}"
    INSTALLED = "installed"
    WHEEL = "wheel"
    CONTAINER = "container"


@dataclass(frozen=True)
class Launcher:
    """What was picked; ``program`` is set where the server is a file that lies here already."""

    source: Source
    program: Path | None = None


def find_launcher(
    environ: Mapping[str, str],
    *,
    usual_place: Path = USUAL_PLACE,
    obstacle: Callable[[], MachineError | None] = wheel_obstacle,
    docker: Callable[[], bool] | None = None,
) -> Launcher:
    """The first Triton in the order above. Nothing is fetched.

    ``INFERSWEEP_TRITON`` may also say ``wheel`` or ``container``, to pick out of order.

    Raises:
        MachineError: the given path is no program, or this machine can run none of them.
    """
    given = environ.get(CHOICE_VARIABLE, "")
    if given in (Source.WHEEL.value, Source.CONTAINER.value):
        return Launcher(Source(given))
    if given:
        return Launcher(Source.GIVEN, _given_program(Path(given)))
    on_path = shutil.which(PROGRAM, path=environ.get("PATH", os.defpath))
    if on_path:
        return Launcher(Source.INSTALLED, Path(on_path))
    if _is_program(usual_place):
        return Launcher(Source.INSTALLED, usual_place)
    problem = obstacle()
    if problem is None:
        return Launcher(Source.WHEEL)
    if (docker or docker_works)():
        return Launcher(Source.CONTAINER)
    raise problem


def docker_works() -> bool:
    """Whether Docker's service answers; a client alone cannot run the image."""
    if not shutil.which("docker"):
        return False
    try:
        done = subprocess.run(
            ["docker", "info"], capture_output=True, timeout=_DOCKER_ANSWERS_WITHIN_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0


def native_backends(program: Path) -> Path | None:
    """The backend folder beside an installed server, ``None`` when it keeps its own default.

    Raises:
        MachineError: that folder has no ONNX Runtime backend.
    """
    folder = program.resolve().parent.parent / "backends"
    if not folder.is_dir():
        return None
    library = folder / "onnxruntime" / "libtriton_onnxruntime.so"
    if not library.is_file():
        raise MachineError(
            f"{program} has no ONNX Runtime backend: {library} does not exist",
            hint=f"Install a Triton that has it, or set {CHOICE_VARIABLE}=wheel.",
        )
    return folder


def native_version(program: Path) -> str:
    """The version that the installation states; the program itself has no such option."""
    stated = program.resolve().parent.parent / "TRITON_VERSION"
    try:
        return stated.read_text(encoding="utf-8").strip()
    except OSError:
        return "not stated by the installation"


def _given_program(path: Path) -> Path:
    if not _is_program(path):
        raise MachineError(
            f"{path}, given in {CHOICE_VARIABLE}, is not a program",
            hint=f"Give the path of {PROGRAM} itself, or unset {CHOICE_VARIABLE}.",
        )
    return path


def _is_program(path: Path) -> bool:
    return path.is_file() and os.access(path, os.X_OK)
