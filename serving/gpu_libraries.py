"""The CUDA, cuDNN and TensorRT libraries that the installed ONNX Runtime needs, and where they are.

What a provider is linked to is asked of the system's own loader (``ldd``), which follows
``LD_LIBRARY_PATH`` and the loader's cache. Python packages keep these libraries where the loader
does not look; they are found here and loaded first.
"""

from __future__ import annotations

import contextlib
import ctypes
import io
import os
import re
import subprocess
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import onnxruntime

from serving.models.accelerators import CUDA, TENSORRT

_PACKAGE = Path(onnxruntime.__file__).parent
_WHEELS = _PACKAGE.parent
_FILES = {
    CUDA: "libonnxruntime_providers_cuda.so",
    TENSORRT: "libonnxruntime_providers_tensorrt.so",
}
_OPENED_LATER = {CUDA: ("libcudnn.so.9",), TENSORRT: ("libnvinfer_plugin.so.10",)}
"""Not linked to, but opened by name when the provider starts or runs its first convolution."""
_LINKED = re.compile(r"^\s*(lib(?:cu(?!rl)|nv)\S+\.so\S*) => (not found|\S+)", re.MULTILINE)
_FOLDERS_OF_WHEELS = ("nvidia/*/lib", "tensorrt_libs")
_USUAL_FOLDERS = (
    "/usr/local/cuda*/lib64",
    "/usr/lib/*-linux-gnu",
    "/usr/lib64",
    "/usr/local/tensorrt*/lib",
)


@dataclass(frozen=True)
class Library:
    """A library that a provider needs.

    Attributes:
        name: as the loader looks for it, such as ``libcudnn.so.9``.
        path: where it is; ``None`` when it is missing.
        others: files of the same library in other versions, which do not serve.
    """

    name: str
    path: Path | None
    others: tuple[Path, ...] = ()


def libraries(provider: str) -> tuple[Library, ...]:
    """What ``provider`` needs of NVIDIA; empty for a provider of another kind."""
    file = _PACKAGE / "capi" / _FILES.get(provider, "")
    if not file.is_file():
        return ()
    linked = subprocess.run(["ldd", str(file)], capture_output=True, text=True, check=False)
    return locate(linked.stdout, _OPENED_LATER[provider], _WHEELS, _search_path())


def locate(
    linked: str, opened_later: Iterable[str], wheels: Path, folders: Sequence[Path]
) -> tuple[Library, ...]:
    """The libraries that ``ldd`` named and those opened later, each with its place.

    Args:
        linked: what ``ldd`` printed.
        opened_later: names of libraries that are not linked to but opened.
        wheels: the folder into which Python packages are installed.
        folders: where the loader looks; asked only for what ``ldd`` does not tell.
    """
    told = {
        name: None if place == "not found" else place for name, place in _LINKED.findall(linked)
    }
    of_wheels = [folder for pattern in _FOLDERS_OF_WHEELS for folder in wheels.glob(pattern)]
    found = []
    for name in (*told, *(name for name in opened_later if name not in told)):
        place = Path(told[name] or "") if told.get(name) else None
        for folder in (*of_wheels, *folders):
            if place is None and (folder / name).exists():
                place = folder / name
        others = () if place else _other_versions(name, (*of_wheels, *folders))
        found.append(Library(name, place, others))
    return tuple(found)


def missing(provider: str) -> tuple[str, ...]:
    """Names of the libraries that ``provider`` needs and that are not here."""
    return tuple(library.name for library in libraries(provider) if library.path is None)


def way_out(names: Iterable[str]) -> str:
    """Where the missing libraries come from, as sentences."""
    cuda = onnxruntime.cuda_version
    drivers = [name for name in names if name.startswith("libcuda.so")]
    tensorrt = [name for name in names if name.startswith(("libnvinfer", "libnvonnxparser"))]
    steps = []
    if drivers:
        steps.append(f"Install NVIDIA's driver for CUDA {cuda}, or give the container its GPU.")
    if set(names) - {*drivers, *tensorrt}:
        steps.append(f"Run pip install '{onnxruntime.package_name}[cuda,cudnn]'.")
    if tensorrt:
        major = tensorrt[0].rpartition(".")[2]
        steps.append(f"Run pip install 'tensorrt-cu{cuda.split('.')[0]}-libs=={major}.*'.")
    return " ".join(steps)


def preload() -> None:
    """Load the libraries that Python packages brought, so that ONNX Runtime finds them."""
    with contextlib.redirect_stdout(io.StringIO()):
        # It prints what is missing, which `libraries` tells better.
        onnxruntime.preload_dlls()
    for library in libraries(TENSORRT):
        if library.path and library.path.is_relative_to(_WHEELS):
            with contextlib.suppress(OSError):
                ctypes.CDLL(str(library.path), mode=ctypes.RTLD_GLOBAL)


def tensorrt_version() -> str:
    """TensorRT's version, such as ``10.13.3``; empty when it is missing."""
    for library in libraries(TENSORRT):
        if library.name.startswith("libnvinfer.so") and library.path:
            number = int(ctypes.CDLL(str(library.path)).getInferLibVersion())
            return f"{number // 10_000}.{number // 100 % 100}.{number % 100}"
    return ""


def _other_versions(name: str, folders: Iterable[Path]) -> tuple[Path, ...]:
    stem = name.partition(".so")[0]
    return tuple(sorted(file for folder in folders for file in folder.glob(f"{stem}.so.*")))


def _search_path() -> tuple[Path, ...]:
    named = os.environ.get("LD_LIBRARY_PATH", "").split(":")
    usual = (folder for pattern in _USUAL_FOLDERS for folder in Path("/").glob(pattern[1:]))
    return (*(Path(folder) for folder in named if folder), *usual)
