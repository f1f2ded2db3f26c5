"""Which Triton is picked, and what is said when none can be."""

from __future__ import annotations

import shutil
import subprocess
import sysconfig
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from serving.backends.base import ServePlan
from serving.backends.triton import BACKEND, container, shared_memory_warnings, wheel
from serving.backends.triton.locate import (
    Launcher,
    Source,
    find_launcher,
    native_backends,
    native_version,
)
from serving.errors import FetchError, MachineError, ModelError
from serving.models.repository import Model, place

OBSTACLE = MachineError("the wheel cannot run", hint="Try something else.")


def program(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755)
    return path


def find(
    environ: dict[str, str],
    tmp_path: Path,
    *,
    obstacle: MachineError | None = None,
    docker: bool = True,
) -> Launcher:
    return find_launcher(
        {"PATH": "", **environ},
        usual_place=tmp_path / "usual" / "tritonserver",
        obstacle=lambda: obstacle,
        docker=lambda: docker,
    )


def test_each_launcher_gives_way_to_those_before_it(tmp_path: Path) -> None:
    assert find({}, tmp_path, obstacle=OBSTACLE) == Launcher(Source.CONTAINER)
    assert find({}, tmp_path) == Launcher(Source.WHEEL)
    usual = program(tmp_path / "usual" / "tritonserver")
    assert find({}, tmp_path) == Launcher(Source.INSTALLED, usual)
    on_path = program(tmp_path / "bin" / "tritonserver")
    environ = {"PATH": str(on_path.parent)}
    assert find(environ, tmp_path) == Launcher(Source.INSTALLED, on_path)
    own = program(tmp_path / "own" / "triton")
    environ["INFERSWEEP_TRITON"] = str(own)
    assert find(environ, tmp_path) == Launcher(Source.GIVEN, own)


@pytest.mark.parametrize("source", [Source.WHEEL, Source.CONTAINER])
def test_a_word_picks_out_of_order(tmp_path: Path, source: Source) -> None:
    program(tmp_path / "usual" / "tritonserver")
    assert find({"INFERSWEEP_TRITON": source.value}, tmp_path) == Launcher(source)


def test_a_given_path_that_is_no_program_is_an_error_not_a_fallback(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("")
    for path in (tmp_path / "absent", tmp_path, tmp_path / "text"):
        with pytest.raises(MachineError, match="is not a program"):
            find({"INFERSWEEP_TRITON": str(path)}, tmp_path)


def test_nothing_usable_says_why_the_wheel_is_not(tmp_path: Path) -> None:
    with pytest.raises(MachineError, match="the wheel cannot run"):
        find({}, tmp_path, obstacle=OBSTACLE, docker=False)


def test_an_installed_triton_must_have_onnxruntime(tmp_path: Path) -> None:
    server = program(tmp_path / "bin" / "tritonserver")
    assert native_backends(server) is None
    assert native_version(server) == "not stated by the installation"
    (tmp_path / "TRITON_VERSION").write_text("2.51.0\n")
    assert native_version(server) == "2.51.0"
    (tmp_path / "backends" / "onnxruntime").mkdir(parents=True)
    with pytest.raises(MachineError, match="no ONNX Runtime backend"):
        native_backends(server)
    (tmp_path / "backends" / "onnxruntime" / "libtriton_onnxruntime.so").write_text("")
    assert native_backends(server) == tmp_path / "backends"


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
@pytest.mark.parametrize("release", ["2.35", "2.36", "2.100", "3.0"])
def test_machines_that_can_run_the_wheel(machine: str, release: str) -> None:
    assert wheel.wheel_obstacle(machine=machine, libc=("glibc", release), python=(3, 12)) is None


@pytest.mark.parametrize(
    ("machine", "libc", "python", "said"),
    [
        ("riscv64", ("glibc", "2.40"), (3, 11), "does not exist for riscv64"),
        ("x86_64", ("glibc", "2.34"), (3, 11), "needs glibc 2.35 or newer; here is glibc 2.34"),
        ("x86_64", ("glibc", "2.9"), (3, 11), "here is glibc 2.9"),
        ("x86_64", ("", ""), (3, 11), "here is another C library"),
        ("x86_64", ("glibc", "2.40"), (3, 13), "NumPy 1, which has no wheel for Python 3.13"),
    ],
)
def test_machines_that_cannot(
    machine: str, libc: tuple[str, str], python: tuple[int, int], said: str
) -> None:
    error = wheel.wheel_obstacle(machine=machine, libc=libc, python=python)
    assert error is not None
    assert said in str(error)
    assert "container" in error.hint
    assert "\n" not in str(error)


def test_a_missing_libpython_is_named_with_its_package() -> None:
    listing = (
        "/x/stub:\n\tlibz.so.1 => not found\n\tlibpython3.11.so.1.0 => not found\n"
        "\tlibc.so.6 => /lib/libc.so.6 (0x00007f06c4e1e000)\n"
    )
    error = wheel.library_error(listing)
    assert error is not None
    assert error.what.startswith("libpython3.11.so.1.0 was not found")
    assert "apt-get install libpython3." in error.hint
    other = wheel.library_error("\tlibz.so.1 => not found\n")
    assert other is not None
    assert other.what.startswith("libz.so.1")
    assert wheel.library_error("\tlibc.so.6 => /lib/libc.so.6 (0x00)\n") is None


def test_our_own_shared_python_comes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    variables = {"Py_ENABLE_SHARED": 1, "LIBDIR": str(tmp_path), "INSTSONAME": "libpython.so"}
    monkeypatch.setattr(sysconfig, "get_config_var", variables.get)
    monkeypatch.setenv("LD_LIBRARY_PATH", "/theirs")
    found = wheel.Installation(tmp_path / "triton")
    assert "LD_LIBRARY_PATH" not in found.environment
    (tmp_path / "libpython.so").write_text("")
    assert found.environment["LD_LIBRARY_PATH"] == f"{tmp_path}:/theirs"
    variables["Py_ENABLE_SHARED"] = 0
    assert "LD_LIBRARY_PATH" not in found.environment


def test_the_stub_sees_no_python_of_ours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/usual")
    environment = wheel.Installation(tmp_path).environment
    assert environment["PATH"] == f"{tmp_path}/venv/bin:/usual"
    assert [environment[n] for n in ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV")] == ["", "", ""]


@pytest.fixture
def fresh_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache on a machine that can run the wheel."""
    monkeypatch.setenv("INFERSWEEP_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(wheel, "wheel_obstacle", lambda: None)
    return tmp_path / "cache"


def pip_that(answer: Callable[[list[str]], tuple[int, str]]) -> Callable[..., object]:
    def run(command: list[str], **_: object) -> SimpleNamespace:
        code, stderr = answer(command)
        return SimpleNamespace(returncode=code, stderr=stderr, stdout="")

    return run


def test_a_failing_pip_is_quoted_and_leaves_nothing(
    fresh_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stderr = "WARNING: Retrying\nERROR: No matching distribution found for nvidia-pytriton\n\n"
    monkeypatch.setattr(subprocess, "run", pip_that(lambda _: (1, stderr)))
    lines: list[str] = []
    with pytest.raises(FetchError, match="failed: No matching distribution found") as caught:
        wheel.ensure_triton(lines.append)
    assert "network" in caught.value.hint
    assert "\n" not in str(caught.value)
    assert lines == ["fetching nvidia-pytriton 0.7.0 (about 75 MB)"]
    assert list(fresh_cache.iterdir()) == []


def test_a_wheel_that_is_not_the_pinned_one_is_refused(
    fresh_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def download(command: list[str]) -> tuple[int, str]:
        folder = Path(command[command.index("--dest") + 1])
        folder.mkdir()
        (folder / "other.whl").write_bytes(b"other")
        return 0, ""

    monkeypatch.setattr(subprocess, "run", pip_that(download))
    with pytest.raises(FetchError, match="is not the file that was pinned"):
        wheel.ensure_triton(lambda _: None)
    assert list(fresh_cache.iterdir()) == []


def test_too_little_disk_is_said_before_anything_is_fetched(
    fresh_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=400_000_000))
    lines: list[str] = []
    with pytest.raises(MachineError, match=r"0\.4 GB free; Triton needs 1\.5 GB"):
        wheel.ensure_triton(lines.append)
    assert lines == []


def test_a_cache_that_cannot_be_written_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fresh_cache: Path
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("INFERSWEEP_CACHE", str(tmp_path / "file" / "cache"))
    with pytest.raises(MachineError, match="cannot be installed in"):
        wheel.ensure_triton(lambda _: None)


def plan_for(model: Model, folder: Path) -> ServePlan:
    return ServePlan("triton", "", model, (0, 2), 8123, folder)


def test_launch_of_an_installed_triton(
    tiny: Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = program(tmp_path / "bin" / "tritonserver")
    monkeypatch.setenv("INFERSWEEP_TRITON", str(server))
    launch = BACKEND.launch(plan_for(tiny, tmp_path))
    assert launch.argv[0] == str(server)
    assert {"--load-model=tiny", "--http-port=8123", "--http-thread-count=2"} <= set(launch.argv)
    assert launch.facts["onnxruntime backend"] == "native"
    ports = [word.partition("=")[2] for word in launch.argv if "-port=" in word]
    assert len(set(ports)) == 3
    assert launch.metrics_url == f"http://127.0.0.1:{ports[2]}/metrics"


def test_launch_of_the_container_mounts_what_the_links_point_to(
    tiny: Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    placed = place(tiny, tmp_path / "placed", instances=1, intra_op_threads=1)
    monkeypatch.setenv("INFERSWEEP_TRITON", "container")
    monkeypatch.setenv("INFERSWEEP_TRITON_IMAGE", "own/triton:1")
    launch = BACKEND.launch(plan_for(placed, tmp_path))
    mounts = [b for a, b in zip(launch.argv, launch.argv[1:], strict=False) if a == "--volume"]
    version = (tiny.folder / "1").resolve()
    assert mounts == [f"{p}:{p}:ro" for p in (placed.root.resolve(), version)]
    assert launch.argv[launch.argv.index("--cpuset-cpus") + 1] == "0,2"
    at = launch.argv.index("own/triton:1")
    assert launch.argv[at + 1] == "tritonserver"
    assert launch.warnings == (container.WARNING,)
    assert "own/triton:1" in launch.facts["launcher"]


def test_the_wheel_refuses_a_gpu_model(
    tiny: Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    placed = place(tiny, tmp_path / "placed", instances=1, intra_op_threads=1)
    file = placed.folder / "config.pbtxt"
    file.write_text(file.read_text().replace("KIND_CPU", "KIND_GPU"))
    monkeypatch.setenv("INFERSWEEP_TRITON", "wheel")
    with pytest.raises(ModelError, match="asks for a GPU"):
        BACKEND.launch(plan_for(placed, tmp_path))


def test_small_shared_memory_is_warned_of() -> None:
    assert shared_memory_warnings(256_000_000) == ()
    (warning,) = shared_memory_warnings(64_000_000)
    assert "64 MB free" in warning
