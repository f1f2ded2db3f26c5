"""A real Triton without Docker: the server out of the ``nvidia-pytriton`` wheel, made complete.

The wheel carries the server and its Python backend. What it lacks is added here, once, in the
cache folder: a Python-based backend called ``onnxruntime``, and a small virtual environment for
the backend's Python stub. The stub is not safe with NumPy 2 (it then answers HTTP 200 with empty
or repeated data), so that environment holds NumPy 1 whatever this one holds; Pillow, which decodes
the pictures of front halves, is of this one's version.
"""

from __future__ import annotations

import json
import os
import platform
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import venv
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, distributions, version
from pathlib import Path

from serving.errors import FetchError, MachineError
from serving.models.weights import cache_folder, sha256_of

PACKAGE = "nvidia-pytriton"
PACKAGE_VERSION = "0.7.0"
SERVER_VERSION = "2.51.0"
NUMPY_VERSION = "1.26.4"
WHEEL_SHA256 = {
    "x86_64": "21f063ff93bb426d0c06b7a55e7eb9efcfe62c0dddd9a908e9877e18710128df",
    "aarch64": "f99e07ee56fe065337453956afba17d2673e02ec6a632c3de26ce6e7b32a0898",
}
NEEDED_BYTES = 1_500_000_000
OLDEST_GLIBC = (2, 35)
NEWEST_PYTHON = (3, 12)
_STAMP = "complete.json"
_BACKEND_MODEL = Path(__file__).with_name("onnxruntime_model.py")
_OTHER_WAYS = "use the container image, or give a tritonserver in INFERSWEEP_TRITON"

Progress = Callable[[str], None]


@dataclass(frozen=True)
class Installation:
    """One finished folder: server, backends and the stub's virtual environment."""

    folder: Path

    @property
    def program(self) -> Path:
        return self._server / "bin" / "tritonserver"

    @property
    def backends(self) -> Path:
        """What Triton is pointed to: the wheel's Python backend and ours.

        The name follows from our file's content: an infersweep of another version, which shares
        this installation, must not change the file below a server that runs.
        """
        return self._server / f"backends-{sha256_of(_BACKEND_MODEL)[:12]}"

    @property
    def python_backend(self) -> Path:
        return self._server / "backends" / "python"

    @property
    def stub(self) -> Path:
        return self.python_backend / "triton_python_backend_stub"

    @property
    def stub_python(self) -> Path:
        return self.folder / "venv" / "bin" / "python3"

    @property
    def site_packages(self) -> Path:
        return self.folder / "venv" / "lib" / f"python{_python()}" / "site-packages"

    @property
    def versions(self) -> dict[str, str]:
        """Packages of the stub's environment, as found there when it was built."""
        stamp = json.loads((self.folder / _STAMP).read_text(encoding="utf-8"))
        return {str(name): str(text) for name, text in stamp.items()}

    @property
    def environment(self) -> dict[str, str]:
        """Variables for the server: the stub finds its own Python and nothing of ours."""
        search = [str(self.stub_python.parent), os.environ.get("PATH", os.defpath)]
        variables = {"PATH": os.pathsep.join(search)}
        # Python takes an empty variable for none; a Launch can add variables but not remove them.
        variables |= {"PYTHONPATH": "", "PYTHONHOME": "", "VIRTUAL_ENV": ""}
        folder = shared_python_folder()
        if folder:
            search = [str(folder), os.environ.get("LD_LIBRARY_PATH", "")]
            variables["LD_LIBRARY_PATH"] = os.pathsep.join(part for part in search if part)
        return variables

    @property
    def _server(self) -> Path:
        return self.folder / "pytriton" / "tritonserver"


def wheel_obstacle(
    *,
    machine: str | None = None,
    libc: tuple[str, str] | None = None,
    python: tuple[int, int] | None = None,
) -> MachineError | None:
    """Why this machine cannot run the wheel's server, ``None`` when it can.

    The arguments let a test ask for another machine.
    """
    machine = machine or platform.machine()
    name, release = libc or platform.libc_ver()
    python = python or sys.version_info[:2]
    if machine not in WHEEL_SHA256:
        return MachineError(
            f"Triton's wheel does not exist for {machine}; it does for {', '.join(WHEEL_SHA256)}",
            hint=f"Else {_OTHER_WAYS}.",
        )
    if name != "glibc" or _numbers(release) < OLDEST_GLIBC:
        oldest = ".".join(map(str, OLDEST_GLIBC))
        return MachineError(
            f"Triton's wheel needs glibc {oldest} or newer; "
            f"here is {f'glibc {release}' if name == 'glibc' else 'another C library'}",
            hint=f"Use a newer distribution; else {_OTHER_WAYS}.",
        )
    if python > NEWEST_PYTHON:
        return MachineError(
            f"Triton's Python stub needs NumPy 1, which has no wheel for Python "
            f"{'.'.join(map(str, python))}",
            hint=f"Run infersweep with Python {'.'.join(map(str, NEWEST_PYTHON))}; "
            f"else {_OTHER_WAYS}.",
        )
    return None


def installation() -> Installation:
    """Where the installation for this Python, ONNX Runtime and Pillow lies, built or not."""
    package, release = installed_onnxruntime()
    return Installation(
        cache_folder()
        / f"triton-{PACKAGE_VERSION}-{platform.machine()}-python{_python()}-{package}-{release}"
        f"-pillow-{version('pillow')}"
    )


def is_complete(found: Installation) -> bool:
    return (found.folder / _STAMP).is_file()


def ensure_triton(progress: Progress) -> Installation:
    """The wheel's server, ready to start; fetched and assembled if that was not done before.

    Raises:
        MachineError: this machine cannot run it, or lacks disk space or a library.
        FetchError: a package could not be fetched.
    """
    obstacle = wheel_obstacle()
    if obstacle:
        raise obstacle
    wanted = installation()
    if not is_complete(wanted):
        _install(wanted, progress)
    _write_backends(wanted)
    require_libraries(wanted)
    return wanted


def require_libraries(found: Installation) -> None:
    """Check that the server and its stub find every shared library.

    Raises:
        MachineError: one is missing.
    """
    listing = subprocess.run(
        ["ldd", str(found.program), str(found.stub)],
        capture_output=True,
        text=True,
        env={**os.environ, **found.environment},
        check=False,
    ).stdout
    error = library_error(listing)
    if error:
        raise error


def library_error(listing: str) -> MachineError | None:
    """What the output of ``ldd`` says is missing, ``None`` when nothing is."""
    missing = [line.split()[0] for line in listing.splitlines() if line.endswith("=> not found")]
    if not missing:
        return None
    library = min(missing, key=lambda name: not name.startswith("libpython"))
    hint = "Install the system package that has it."
    if library.startswith("libpython"):
        hint = f"On Debian or Ubuntu: `apt-get install libpython{_python()}`."
    return MachineError(f"{library} was not found, which Triton needs", hint=hint)


def shared_python_folder() -> Path | None:
    """The folder of this Python's own shared library, ``None`` when it was built without."""
    folder, name = sysconfig.get_config_var("LIBDIR"), sysconfig.get_config_var("INSTSONAME")
    if not sysconfig.get_config_var("Py_ENABLE_SHARED") or not folder or not name:
        return None
    return Path(folder) if (Path(folder) / name).is_file() else None


def installed_onnxruntime() -> tuple[str, str]:
    """Package and version of the ONNX Runtime that this process uses.

    Raises:
        MachineError: there is none.
    """
    for package in ("onnxruntime-gpu", "onnxruntime"):
        try:
            return package, version(package)
        except PackageNotFoundError:
            continue
    raise MachineError("ONNX Runtime is not installed", hint="Run `pip install -e .` again.")


def _install(wanted: Installation, progress: Progress) -> None:
    """Build in a folder beside the final one, then rename: an interruption leaves nothing half."""
    parent = wanted.folder.parent
    try:
        parent.mkdir(parents=True, exist_ok=True)
        _require_space(parent)
        with tempfile.TemporaryDirectory(prefix=".triton-", dir=parent) as scratch:
            built = Installation(Path(scratch) / "built")
            _build(built, Path(scratch), progress)
            if not is_complete(wanted):  # another process may have been faster
                built.folder.rename(wanted.folder)
    except OSError as error:
        raise MachineError(
            f"Triton cannot be installed in {parent}: {error.strerror or error}",
            hint="Set INFERSWEEP_CACHE to a folder that can be written.",
        ) from None
    progress(f"Triton {SERVER_VERSION} is ready in {wanted.folder}")


def _build(built: Installation, scratch: Path, progress: Progress) -> None:
    progress(f"fetching {PACKAGE} {PACKAGE_VERSION} (about 75 MB)")
    _unpack(_fetch_wheel(scratch / "download"), built.folder)
    stub = built.folder / "pytriton/tritonserver/python_backend_stubs" / _python() / built.stub.name
    shutil.copy2(stub, built.stub)
    for program in (built.program, built.stub):
        program.chmod(0o755)
    package, release = installed_onnxruntime()
    progress(f"fetching NumPy, Pillow and {package} {release} for Triton's Python stub")
    venv.create(built.folder / "venv", symlinks=True)
    _pip(
        *("install", "--only-binary=:all:", "--target", str(built.site_packages)),
        *(f"numpy=={NUMPY_VERSION}", f"{package}=={release}", f"pillow=={version('pillow')}"),
    )
    versions = {
        found.metadata["Name"]: found.version
        for found in distributions(path=[str(built.site_packages)])
    }
    if versions.get("numpy") != NUMPY_VERSION:
        raise FetchError(
            f"pip put NumPy {versions.get('numpy')} where {NUMPY_VERSION} was asked for",
            hint="Look for constraints in pip's configuration.",
        )
    text = json.dumps({PACKAGE: PACKAGE_VERSION, "tritonserver": SERVER_VERSION, **versions})
    (built.folder / _STAMP).write_text(text, encoding="utf-8")


def _fetch_wheel(folder: Path) -> Path:
    _pip(
        *("download", "--no-deps", "--only-binary=:all:", "--dest", str(folder)),
        f"{PACKAGE}=={PACKAGE_VERSION}",
    )
    wheel = next(folder.glob("*.whl"))
    found = sha256_of(wheel)
    if found != WHEEL_SHA256[platform.machine()]:
        raise FetchError(
            f"{wheel.name} is not the file that was pinned: its SHA-256 is {found}",
            hint="Check the package index that pip uses.",
        )
    return wheel


def _unpack(wheel: Path, folder: Path) -> None:
    """Take the server, its libraries and the licences; PyTriton's own Python code stays out."""
    wanted = ("pytriton/tritonserver/", "nvidia_pytriton.libs/", "nvidia_pytriton-")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder, [n for n in archive.namelist() if n.startswith(wanted)])


def _write_backends(found: Installation) -> None:
    """Put our Python-based backend where Triton looks for the one called ``onnxruntime``."""
    if found.backends.is_dir():
        return
    with tempfile.TemporaryDirectory(prefix=".backends-", dir=found.backends.parent) as scratch:
        built = Path(scratch) / "built"
        (built / "onnxruntime").mkdir(parents=True)
        shutil.copyfile(_BACKEND_MODEL, built / "onnxruntime" / "model.py")
        (built / "python").symlink_to(found.python_backend)
        if not found.backends.is_dir():  # another process may have been faster
            built.rename(found.backends)


def _pip(command: str, *arguments: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "pip", command, "--disable-pip-version-check", "-q", *arguments],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise FetchError(
            f"pip {command} failed: {last_line(done.stderr)}",
            hint="Check the network and pip's index settings, then run the command again.",
        )


def last_line(text: str) -> str:
    """The last line that says something."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1].removeprefix("ERROR: ") if lines else "no reason was given"


def _require_space(folder: Path) -> None:
    free = shutil.disk_usage(folder).free
    if free < NEEDED_BYTES:
        raise MachineError(
            f"{folder} has {free / 1e9:.1f} GB free; Triton needs {NEEDED_BYTES / 1e9:.1f} GB",
            hint="Free some space, or set INFERSWEEP_CACHE to a folder on another disk.",
        )


def _python() -> str:
    return f"{sys.version_info.major}.{sys.version_info.minor}"


def _numbers(release: str) -> tuple[int, ...]:
    return tuple(int(part) for part in release.split(".") if part.isdecimal())
