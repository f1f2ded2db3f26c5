"""A user's mistake is one line with its exit code, never a traceback, and starts nothing."""

from __future__ import annotations

import subprocess
import sys
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from pkgutil import iter_modules
from typing import Any

import pytest

from loadtest import cli
from loadtest.cli import app, main, models
from serving.models.repository import Model
from serving.process import free_port, require_free_port


def run(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    monkeypatch.setattr(sys, "argv", ["infersweep", *arguments])
    with pytest.raises(SystemExit) as left:
        main()
    return int(left.value.code or 0)


@pytest.mark.parametrize(
    ("arguments", "status", "told"),
    [
        (["compare", "--backends", "tritn"], 2, "there is no backend 'tritn'"),
        (["compare", "--backends", ","], 2, "names none"),
        (["compare", "--backends", "null,null"], 2, "names one twice"),
        (["compare", "--model", "nothing"], 5, "there is no model 'nothing'"),
        (["compare", "--concurrency", "0,1"], 2, "whole numbers above 0"),
        (["compare", "--concurrency", "four"], 2, "whole numbers above 0"),
        (["compare", "--duration", "-1"], 2, "--duration is -1"),
        (["compare", "--duration", "0"], 2, "--duration is 0"),
        (["compare", "--repeats", "0"], 2, "--repeats is 0"),
        (["compare", "--server-cpus", "900"], 2, "CPU 900 is not usable"),
        (["compare", "--colour"], 2, "No such option"),
        (["compare", "--objective", "p99<=50"], 2, "lacks its unit"),
        (["compare", "-o", "p99<=50ms", "--concurrency", "4"], 2, "finds its load itself"),
        (["compare", "-o", "p99<=50ms", "--repeats", "0"], 2, "--repeats is 0"),
        (["compare", "--max-errors", "0.1%"], 2, "no percentile is among the objectives"),
        (["slo"], 2, "no percentile is among the objectives"),
        (["slo", "--objective", "fast"], 2, "cannot be read"),
        (["slo", "--objective", "speed<=5ms"], 2, "there is no measure 'speed'"),
        (["slo", "--objective", "memory<=5MB"], 2, "no percentile"),
        (["slo", "--objective", "p99<=0ms"], 2, "not above 0"),
        (["slo", "-o", "p99<=5ms", "--backend", "triton,fastapi"], 2, "names 2"),
        (["slo", "-o", "p99<=5ms", "--limit", "1"], 2, "below --duration"),
        (["slo", "-o", "p99<=20s"], 2, "no shorter than the timeout"),
        (["slo", "-o", "p99<=5ms", "--max-errors", "5%"], 2, "allows more errors"),
        (["serve", "--backend", "remote:http://127.0.0.1:1"], 2, "not ours to start"),
        (["report", "no-such-folder"], 9, "does not exist"),
        (["comapre"], 2, "No such command"),
        (["load"], 2, "name one server"),
        (["load", "--url", "http://127.0.0.1:1", "--backend", "null"], 2, "name one server"),
        (["load", "--backend", "null", "--scenario", "sever"], 2, "there is no scenario 'sever'"),
        (["load", "--backend", "null", "-p", "rate"], 2, "Write NAME=VALUE"),
        (["load", "--backend", "null", "-p", "rate=1"], 2, "parameter 'rate'"),
        (["load", "--backend", "null", "--levels", "-5"], 2, "different numbers above 0"),
        (["load", "--backend", "null", "--levels", "0"], 2, "different numbers above 0"),
        (["load", "--backend", "null", "--levels", "1.5"], 2, "Give a whole number"),
        (["load", "--backend", "null", "--encoding", "xml"], 2, "there is no encoding 'xml'"),
        (["load", "--backend", "null", "--engine", "jet"], 2, "there is no engine 'jet'"),
        (["load", "--backend", "null", "--driver", "k6"], 2, "there is no driver 'k6'"),
        (
            ["load", "--backend", "null", "--driver", "loadgen", "--scenario", "ramp"],
            2,
            "LoadGen has no scenario 'ramp'",
        ),
        (["load", "--backend", "null", "--until-confident", "no"], 2, "Write for example 5%"),
        (["load", "--backend", "null", "-H", "no colon"], 2, "Write 'Name: value'"),
        (["load", "--url", "ftp://127.0.0.1"], 2, "no address"),
        (["load", "--url", "http://127.0.0.1:8000/v2"], 2, "no path"),
        (["load", "--url", "http://"], 2, "no address"),
        (["load", "--url", "https://127.0.0.1:1", "--engine", "native"], 2, "not speak https"),
        (["load", "--url", "http://127.0.0.1:1"], 6, "there is no v2 server at"),
        (["load", "--url", "grpc://127.0.0.1:1"], 6, "there is no v2 server at"),
        (
            ["load", "--backend", "null", "--scenario", "replay", "-p", "trace=none.csv"],
            2,
            "cannot be read",
        ),
    ],
)
def test_mistakes(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    status: int,
    told: str,
) -> None:
    assert run(monkeypatch, *arguments) == status
    said = capsys.readouterr().err.strip()
    assert told in said
    assert said.startswith("infersweep: ")
    assert "\n" not in said


def test_a_taken_port_is_told() -> None:
    import socket

    from serving.errors import MachineError

    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(MachineError, match=r"--port"):
            require_free_port(taken.getsockname()[1])
    port = free_port()
    assert require_free_port(port) == port


def test_a_folder_of_other_files_is_not_written_to(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    tiny: Model,
) -> None:
    (tmp_path / "letter.txt").write_text("dear")
    arguments = ["compare", "--model", "tiny", "--backends", "null", "--out", str(tmp_path)]
    assert run(monkeypatch, *arguments, "--repository", str(tiny.root)) == 9
    assert "no results of infersweep" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["letter.txt"]


def test_every_command_has_help_with_an_example() -> None:
    """Every file that has a command's name is registered, and nothing else is."""
    groups = [group.typer_instance.info for group in app.registered_groups]
    registered: list[Any] = [*app.registered_commands, *models.app.registered_commands]
    registered += [group for group in groups if group.name]
    files = [
        import_module(f"{package.__name__}.{found.name}")
        for package in (cli, models)
        for found in iter_modules(package.__path__)
    ]
    commands = [file for file in files if hasattr(file, "NAME")]
    assert {(c.name, c.epilog) for c in registered} == {(c.NAME, c.EXAMPLES) for c in commands}
    assert len(registered) == len(commands) == len({command.epilog for command in registered})
    assert all("`infersweep " in str(command.epilog) for command in registered)


def test_an_old_python_is_told_so(tmp_path: Path) -> None:
    source = (Path(__file__).parents[2] / "bootstrap.py").read_text()
    future = source.replace("NEEDED_PYTHON = (3, 11)", "NEEDED_PYTHON = (9, 0)")
    assert future != source
    script = tmp_path / "bootstrap.py"
    script.write_text(future)
    done = subprocess.run(
        [sys.executable, str(script)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 3
    assert "too old" in done.stderr
    assert "Traceback" not in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["bootstrap.py"]


def test_the_version_is_told(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(monkeypatch, "--version") == 0
    assert capsys.readouterr().out == f"infersweep {version('infersweep')}\n"
