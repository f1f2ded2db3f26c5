"""Cold start: what lies in the page cache is measured, and starts are told apart by it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from loadtest.coldstart import ColdStarts
from loadtest.explained import Start
from loadtest.folder import ResultsFolder
from loadtest.page_cache import cached, drop, files_of, holders
from loadtest.payload import Payload
from serving.backends.base import Launch
from serving.deployment import Server
from serving.models.repository import Model
from serving.process import RunningProcess

SIZE_BYTES = 4_000_000
HOLD = """\
import mmap, sys
file = open(sys.argv[1], "rb")
held = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
sum(held[::4096])
print("held", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """On disk and in memory, since it was just written; its last page is not whole."""
    kind = subprocess.check_output(["stat", "-f", "-c", "%T", str(tmp_path)], text=True)
    if kind.strip() == "tmpfs":
        pytest.skip("files of a tmpfs never leave memory")
    path = tmp_path / "weights of a model"
    path.write_bytes(os.urandom(SIZE_BYTES))
    return path


@contextmanager
def holding(file: Path) -> Iterator[psutil.Process]:
    """A child that has all of ``file`` mapped, and has touched it."""
    argv = [sys.executable, "-c", HOLD, str(file)]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == b"held\n"
        yield psutil.Process(child.pid)
        child.communicate()


def test_a_file_that_was_dropped_is_in_memory_no_longer(file: Path) -> None:
    assert cached([file]).total_bytes == SIZE_BYTES
    drop([file])
    assert cached([file]).total_bytes == 0
    file.read_bytes()
    assert cached([file]).resident_bytes == {file: SIZE_BYTES}


def test_the_files_of_a_process_are_those_it_has_mapped_or_open(file: Path) -> None:
    with holding(file) as child:
        found = files_of(child.pid)
    assert file in found
    assert any("python" in path.name for path in found - {file})
    assert all(path.is_file() for path in found)
    assert files_of(child.pid) == frozenset()


def test_what_a_living_process_has_mapped_stays_and_its_holder_is_named(file: Path) -> None:
    with holding(file) as child:
        drop([file])
        assert cached([file]).total_bytes == SIZE_BYTES
        assert holders([file]) == {file: {child.name()}}
    assert holders([file]) == {}
    drop([file])
    assert cached([file]).total_bytes == 0


def test_a_file_that_is_gone_holds_nothing(tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    drop([gone])
    assert cached([gone]).resident_bytes == {}


def test_a_file_of_another_user_is_not_taken_for_one_in_memory(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # mincore would call it whole: see can_do_mincore in Linux's mm/mincore.c.
    monkeypatch.setattr(os, "geteuid", lambda: file.stat().st_uid + 1)
    monkeypatch.setattr(os, "access", lambda *_: False)
    assert cached([file]).untold == {file}
    assert cached([file]).total_bytes == 0


@contextmanager
def server(model: Model, file: Path, *, hidden: str = "", printed: str = "") -> Iterator[Server]:
    """A process that has ``file`` mapped and answers nothing at all."""
    sleeps = HOLD.replace("sys.stdin.read()", "__import__('time').sleep(60)")
    log = file.with_name("log")
    log.unlink(missing_ok=True)
    argv = [sys.executable, "-c", f"print({printed!r})\n{sleeps}", str(file)]
    with RunningProcess(argv, log=log) as process:
        while "held" not in process.log_tail():
            assert process.alive
        launch = Launch("a server", "http://127.0.0.1:9", hidden=hidden)
        yield Server(launch, model, process, 1.5, 1)


def started(starts: ColdStarts, running: Server) -> Start:
    found = starts.started("a server", running, Payload(b"", None, {}), values=True)
    assert found is not None
    return found


def test_the_second_start_finds_nothing_cached_and_the_third_all(tiny: Model, file: Path) -> None:
    starts = ColdStarts()
    kept: list[Start] = []
    in_memory_bytes: list[int] = []
    for _ in range(3):
        starts.before_start("a server")
        in_memory_bytes.append(cached([file, tiny.file]).total_bytes)
        with server(tiny, file) as running:
            kept.append(started(starts, running))
    first, second, third = kept
    assert [start.state for start in kept] == ["as found", "not cached", "cached"]
    assert [start.repeat for start in kept] == [1, 2, 3]
    assert in_memory_bytes[1] == 0
    assert in_memory_bytes[2] >= SIZE_BYTES
    assert (first.dropped_bytes, first.kept_bytes) == (None, None)
    assert (second.dropped_bytes or 0) >= SIZE_BYTES
    # Python itself is mapped by this process.
    assert second.kept_bytes
    assert any("have them mapped" in note for note in second.notes)
    assert (third.kept_bytes or 0) >= second.kept_bytes + SIZE_BYTES
    assert third.dropped_bytes == 0


def test_no_right_answer_leaves_the_time_unknown_and_says_why(tiny: Model, file: Path) -> None:
    with server(tiny, file) as running:
        found = started(ColdStarts(), running)
    assert found.ready_s == 1.5
    assert found.first_answer_s is None
    assert any("first answer did not come" in note for note in found.notes)


def test_files_that_cannot_be_seen_are_never_called_dropped(tiny: Model, file: Path) -> None:
    starts = ColdStarts()
    with server(tiny, file, hidden="it runs in a container") as running:
        found = started(starts, running)
    assert any("it runs in a container" in note for note in found.notes)
    assert starts.before_start("a server") == "as found"


def test_a_resumed_run_goes_on_counting_and_drops_once(tiny: Model, file: Path) -> None:
    begun = [
        Start(
            backend="a server",
            repeat=repeat,
            state=state,
            ready_s=1.0,
            first_answer_s=None,
            dropped_bytes=None,
            kept_bytes=None,
        )
        for repeat, state in ((1, "as found"), (2, "not cached"))
    ]
    starts = ColdStarts(begun)
    assert starts.before_start("a server") == "as found"
    with server(tiny, file) as running:
        assert started(starts, running).repeat == 3
    assert starts.before_start("a server") == "cached"


def test_where_an_engine_came_from_is_told(tiny: Model, file: Path) -> None:
    printed = "loaded tiny; TensorRT engine reused in 1.2 s, /engines/abc"
    with server(tiny, file, printed=printed) as running:
        found = started(ColdStarts(), running)
    assert "TensorRT engine: reused in 1.2 s, /engines/abc" in found.notes


def test_a_server_that_is_not_ours_has_no_start(tiny: Model) -> None:
    remote = Server(Launch("remote", "http://127.0.0.1:9"), tiny, None, None, 1)
    assert ColdStarts().started("remote", remote, Payload(b"", None, {}), values=True) is None


def test_starts_are_read_back_without_a_half_written_one(tmp_path: Path) -> None:
    folder = ResultsFolder(tmp_path)
    assert folder.read_starts() == []
    kept = Start(
        backend="a server",
        repeat=1,
        state="as found",
        ready_s=1.0,
        first_answer_s=1.25,
        dropped_bytes=None,
        kept_bytes=None,
    )
    folder.append_start(kept)
    with (tmp_path / "starts.jsonl").open("a") as stream:
        stream.write('{"backend": "a ser')
    assert folder.read_starts() == [kept]
    folder.drop_half_written()
    folder.append_start(kept)
    assert folder.read_starts() == [kept, kept]
