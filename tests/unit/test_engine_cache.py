"""TensorRT engines on disk: one folder for what may share an engine, and no other."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

import pytest
from onnx import helper

from serving.engine_cache import (
    CACHE_ENABLE,
    CACHE_PATH,
    engine_folder,
    engine_key,
    engines,
    exclusive,
    prepare,
    record_build,
)
from serving.errors import MachineError, ModelError
from serving.models.accelerators import TENSORRT, Accelerator
from serving.models.repository import Model
from serving.shape_ranges import OPTIONS
from tests.sample_models import Port, write_model

RUNTIME = {"onnxruntime": "1.31.1", "tensorrt": "10.13.3", "gpus": "A"}
RANGE = dict.fromkeys(OPTIONS, "x:1x4")


def relu(root: Path, length: int) -> Model:
    """Models of one graph name and different static shapes."""
    nodes = [helper.make_node("Relu", ["x"], ["y"])]
    ports = [Port("x", "FP32", (1, length))], [Port("y", "FP32", (1, length))]
    return write_model(root, "relu", nodes, *ports)


def test_equal_on_a_second_run(tmp_path: Path) -> None:
    one, other = relu(tmp_path / "a", 4), relu(tmp_path / "b", 4)
    options = {**RANGE, "trt_fp16_enable": "1"}
    key = engine_key(one.file, options, RUNTIME)
    assert engine_key(one.file, dict(reversed(options.items())), RUNTIME) == key
    assert engine_key(other.file, options, RUNTIME) == key


def test_another_shape_in_a_graph_of_the_same_name_is_another_engine(tmp_path: Path) -> None:
    four, eight = relu(tmp_path / "a", 4), relu(tmp_path / "b", 8)
    assert engine_key(four.file, {}, RUNTIME) != engine_key(eight.file, {}, RUNTIME)


@pytest.mark.parametrize(
    "options",
    [
        RANGE,
        {**RANGE, OPTIONS[2]: "x:8x4"},
        {"trt_fp16_enable": "1"},
        {"trt_int8_enable": "1"},
        {"trt_max_workspace_size": "1073741824"},
    ],
)
def test_ranges_and_precision_have_engines_of_their_own(
    tmp_path: Path, options: dict[str, str]
) -> None:
    file = relu(tmp_path, 4).file
    assert engine_key(file, options, RUNTIME) != engine_key(file, {}, RUNTIME)


@pytest.mark.parametrize("part", RUNTIME)
def test_another_runtime_has_an_engine_of_its_own(tmp_path: Path, part: str) -> None:
    file = relu(tmp_path, 4).file
    other = {**RUNTIME, part: "other"}
    assert engine_key(file, {}, other) != engine_key(file, {}, RUNTIME)


def test_weights_beside_the_model_count(tmp_path: Path) -> None:
    file = relu(tmp_path, 4).file
    weights = file.with_name("weights.bin")
    weights.write_bytes(b"one")
    key = engine_key(file, {}, RUNTIME)
    weights.write_bytes(b"two")
    assert engine_key(file, {}, RUNTIME) != key


def test_where_the_cache_lies_does_not_count(tmp_path: Path) -> None:
    file = relu(tmp_path, 4).file
    assert engine_key(file, {CACHE_PATH: "/a"}, RUNTIME) == engine_key(file, {}, RUNTIME)


def test_the_folder_is_the_project_s_or_the_configuration_s(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("INFERSWEEP_CACHE", str(tmp_path / "own"))
    assert engine_folder({}, "key") == tmp_path / "own" / "engines" / "key"
    assert engine_folder({CACHE_PATH: str(tmp_path / "given")}, "key") == tmp_path / "given" / "key"
    assert engine_folder({CACHE_ENABLE: "0"}, "key") is None


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(MachineError, match=r"file/key: Not a directory.*INFERSWEEP_CACHE"):
        engine_folder({CACHE_PATH: str(tmp_path / "file")}, "key")


def test_preparing_states_range_and_cache(tmp_path: Path) -> None:
    model = relu(tmp_path / "models", 4)
    asked = Accelerator(TENSORRT, {CACHE_PATH: str(tmp_path / "engines"), **RANGE})
    prepared, folder = prepare(model.config, model.file, asked)
    assert folder is not None
    assert folder.parent == tmp_path / "engines"
    assert prepared.options == {**RANGE, CACHE_ENABLE: "1", CACHE_PATH: str(folder)}
    assert prepare(model.config, model.file, asked)[1] == folder


def test_no_cache_is_stated_too(tmp_path: Path) -> None:
    model = relu(tmp_path, 4)
    prepared, folder = prepare(model.config, model.file, Accelerator(TENSORRT, {CACHE_ENABLE: "0"}))
    assert (folder, prepared.options) == (None, {CACHE_ENABLE: "0"})


def test_a_calibration_table_goes_to_where_tensorrt_looks(tmp_path: Path) -> None:
    model = relu(tmp_path / "models", 4)
    options = {
        CACHE_PATH: str(tmp_path / "engines"),
        "trt_int8_enable": "1",
        "trt_int8_calibration_table_name": "table.flatbuffers",
    }
    asked = Accelerator(TENSORRT, options)
    with pytest.raises(ModelError, match=r"table\.flatbuffers.*does not exist"):
        prepare(model.config, model.file, asked)
    model.file.with_name("table.flatbuffers").write_bytes(b"scales")
    _, folder = prepare(model.config, model.file, asked)
    assert folder is not None
    assert (folder / "table.flatbuffers").read_bytes() == b"scales"
    with pytest.raises(ModelError, match="engine cache is off"):
        prepare(model.config, model.file, Accelerator(TENSORRT, {**options, CACHE_ENABLE: "0"}))


def test_what_became_of_the_cache(tmp_path: Path) -> None:
    assert record_build(1.0, None, frozenset()).outcome == "not cached"
    unused = record_build(1.0, tmp_path, engines(tmp_path))
    assert unused.outcome == "cache not used"
    before = engines(tmp_path)
    (tmp_path / "one.engine").write_bytes(b"engine")
    built = record_build(12.34, tmp_path, before)
    assert str(built) == f"built in 12.3 s, {tmp_path}"
    assert record_build(1.0, tmp_path, engines(tmp_path)).outcome == "reused"


def test_one_process_builds_at_a_time(tmp_path: Path) -> None:
    with exclusive(tmp_path), (tmp_path / ".lock").open("w") as other:
        inherited = os.dup(_lock_of(tmp_path))
        with pytest.raises(BlockingIOError):
            fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
    with (tmp_path / ".lock").open("w") as other:
        # A process that was forked meanwhile has the file open still.
        fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
    os.close(inherited)


def _lock_of(folder: Path) -> int:
    """The first file descriptor of this process that is the lock of ``folder``."""
    for link in Path("/proc/self/fd").iterdir():
        if link.exists() and link.resolve() == folder / ".lock":
            return int(link.name)
    raise AssertionError
