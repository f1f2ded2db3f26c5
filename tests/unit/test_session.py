"""Sessions: the provider that was asked for, or none; the process that made it, or none."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import onnxruntime
import psutil
import pytest
from onnx import TensorProto, helper, numpy_helper

from serving.errors import MachineError, ModelError, ServerError
from serving.models.accelerators import CPU
from serving.models.repository import Model
from serving.protocol import ProtocolError
from serving.session import open_session
from tests.sample_models import (
    TINY_CONFIG,
    Port,
    write_bfloat16_sum,
    write_model,
    write_tiny,
)

REAL = onnxruntime.InferenceSession
ROW = {"x": np.zeros((1, 64), np.float32)}

OVER_A_FORK = """
import os, sys
import numpy as np
from pathlib import Path
from serving.errors import ServerError
from serving.models.repository import Model
from serving.session import open_session

model, row = Model(Path(sys.argv[1]), "tiny"), {"x": np.zeros((1, 64), np.float32)}
session = open_session(model, intra_op_threads=2)
session.run(row)
child = os.fork()
if child:
    sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
try:
    session.run(row)
except ServerError as error:
    print(error)
del session
print(*open_session(model, intra_op_threads=2).run(row))
"""


def test_a_session_answers_in_the_configurations_order(tiny: Model) -> None:
    session = open_session(tiny)
    answer = session.run({"x": np.zeros((2, 64), np.float32)})
    assert list(answer) == ["y"]
    assert answer["y"].shape == (2, 10)
    assert (session.provider, session.nodes, session.engine) == (CPU, {}, None)


def test_a_version_can_be_named(tmp_path: Path) -> None:
    write_tiny(tmp_path, version=1, seed=1)
    model = write_tiny(tmp_path, version=2, seed=2)
    newest, first, second = (open_session(model, version=v).run(ROW)["y"] for v in (None, 1, 2))
    np.testing.assert_array_equal(newest, second)
    assert not np.array_equal(first, second)


def test_a_silent_fallback_is_an_error(tiny: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    class Fallen:
        def get_providers(self) -> list[str]:
            return ["SomeOtherProvider"]

    monkeypatch.setattr(onnxruntime, "InferenceSession", lambda *_, **__: Fallen())
    with pytest.raises(MachineError, match="got SomeOtherProvider"):
        open_session(tiny)


def test_a_session_over_a_fork_is_refused_deleted_and_replaced(tiny: Model) -> None:
    """With two threads its deletion in the child would wait for threads that stayed behind."""
    done = subprocess.run(
        [sys.executable, "-c", OVER_A_FORK, str(tiny.root)],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    told, answered = done.stdout.splitlines()
    assert "Open sessions after the fork" in told
    assert answered == "y"


def test_the_parent_s_session_survives_a_fork(tiny: Model) -> None:
    session = open_session(tiny)
    child = os.fork()
    if child == 0:
        os._exit(0)
    os.waitpid(child, 0)
    assert list(session.run(ROW)) == ["y"]


def test_a_closed_session_is_refused(tiny: Model) -> None:
    session = open_session(tiny)
    session.close()
    with pytest.raises(ServerError, match="closed session"):
        session.run(ROW)


@pytest.mark.parametrize("end", ["close", "delete"])
def test_the_memory_of_a_session_is_freed(tmp_path: Path, end: str) -> None:
    model = large_model(tmp_path, megabytes=64)
    process = psutil.Process()
    session = open_session(model)
    session.run({"x": np.zeros((1, 4096), np.float32)})
    while_open = process.memory_info().rss
    if end == "close":
        session.close()
    else:
        del session
    assert while_open - process.memory_info().rss > 32e6


def large_model(root: Path, *, megabytes: int) -> Model:
    rows = megabytes * 2**20 // (4096 * 4)
    model = write_model(
        root,
        "large",
        [helper.make_node("MatMul", ["x", "w"], ["y"])],
        [Port("x", "FP32", (4096,))],
        [Port("y", "FP32", (rows,))],
        max_batch_size=1,
    )
    graph = onnx.load(model.file)
    weights = np.ones((4096, rows), np.float32)
    graph.graph.initializer.append(numpy_helper.from_array(weights, "w"))
    onnx.save(graph, model.file)
    return model


def test_threads_are_stated_and_no_fallback_is_left(
    tiny: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: dict[str, object] = {}

    def recorded(file: str, options: onnxruntime.SessionOptions, **more: Any) -> Any:
        seen.update(more, intra=options.intra_op_num_threads, inter=options.inter_op_num_threads)
        seen["spin"] = options.get_session_config_entry("session.intra_op.allow_spinning")
        seen["arena"] = options.enable_cpu_mem_arena
        return REAL(file, options, **more)

    monkeypatch.setattr(onnxruntime, "InferenceSession", recorded)
    assert open_session(tiny, intra_op_threads=3).provider == CPU
    assert seen == {
        "providers": [(CPU, {})],
        "enable_fallback": 0,
        "intra": 3,
        "inter": 1,
        "spin": "0",
        "arena": True,
    }


def test_runtime_parameters_reach_the_session(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = write_tiny(tmp_path)
    given = {
        "inter_op_thread_count": "2",
        "execution_mode": "1",
        "enable_mem_pattern": "0",
        "memory.enable_memory_arena_shrinkage": "cpu:0",
        "session.use_device_allocator_for_initializers": "1",
    }
    text = "".join(
        f'parameters {{ key: "{key}" value {{ string_value: "{value}" }} }}\n'
        for key, value in given.items()
    )
    without = TINY_CONFIG.replace("inter_op_thread_count", "of_no_meaning")
    (model.folder / "config.pbtxt").write_text(
        f"{without}{text}optimization {{ graph {{ level: 2 }} }}"
    )
    seen: list[onnxruntime.SessionOptions] = []

    def recorded(file: str, options: onnxruntime.SessionOptions, **more: Any) -> Any:
        seen.append(options)
        return REAL(file, options, **more)

    monkeypatch.setattr(onnxruntime, "InferenceSession", recorded)
    assert list(open_session(model).run(ROW)) == ["y"]
    (options,) = seen
    assert options.inter_op_num_threads == 2
    assert options.execution_mode == onnxruntime.ExecutionMode.ORT_PARALLEL
    assert options.graph_optimization_level == onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    assert options.enable_cpu_mem_arena
    assert not options.enable_mem_pattern
    entry = options.get_session_config_entry("session.use_device_allocator_for_initializers")
    assert entry == "1"


def test_a_shape_that_the_graph_refuses_is_the_clients_fault(tiny: Model) -> None:
    with pytest.raises(ProtocolError, match="refuses"):
        open_session(tiny).run({"x": np.zeros((1, 63), np.float32)})


def test_lengths_that_do_not_fit_are_the_clients_fault(tmp_path: Path) -> None:
    """ONNX Runtime reports them as it reports a device that fails."""
    joined = helper.make_node("Concat", ["a", "b"], ["y"], axis=1)
    free = (-1, -1)
    model = write_model(
        tmp_path,
        "joined",
        [joined],
        [Port("a", "FP32", free), Port("b", "FP32", free)],
        [Port("y", "FP32", free)],
    )
    inputs = {"a": np.zeros((1, 3), np.float32), "b": np.zeros((2, 3), np.float32)}
    with pytest.raises(ProtocolError, match="Concat") as told:
        open_session(model).run(inputs)
    assert "ONNXRuntimeError" not in str(told.value)


def test_memory_that_is_not_there_is_the_servers_fault(tmp_path: Path) -> None:
    model = write_model(
        tmp_path,
        "expanded",
        [helper.make_node("Expand", ["x", "shape"], ["y"])],
        [Port("x", "FP32", (1,)), Port("shape", "INT64", (3,))],
        [Port("y", "FP32", (-1, -1, -1))],
    )
    inputs = {"x": np.zeros(1, np.float32), "shape": np.array([1 << 20, 1 << 20, 64])}
    with pytest.raises(ServerError, match="CPUExecutionProvider failed"):
        open_session(model).run(inputs)


def test_bfloat16_is_exact_and_may_be_empty(tmp_path: Path) -> None:
    nodes = [helper.make_node("Identity", ["x"], ["y"])]
    ports = [Port("x", "BF16", (4,))], [Port("y", "BF16", (4,))]
    session = open_session(write_model(tmp_path, "same", nodes, *ports, max_batch_size=8))
    rows = np.array([[1.5, -2, np.inf, 3e38], [0, -0.0, 1e-38, 7]], ml_dtypes.bfloat16)
    answer = session.run({"x": rows})["y"]
    assert answer.dtype == ml_dtypes.bfloat16
    assert answer.tobytes() == rows.tobytes()
    assert session.run({"x": rows[:, ::-1]})["y"].tobytes() == rows[:, ::-1].tobytes()
    assert session.run({"x": rows[:0]})["y"].shape == (0, 4)


def test_an_operator_without_a_kernel_is_told_as_such(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=f"is not runnable on {CPU}: .*Add"):
        open_session(write_bfloat16_sum(tmp_path))


def text_model(root: Path, *dims: int) -> Model:
    nodes = [helper.make_node("Identity", ["x"], ["y"])]
    return write_model(root, "text", nodes, [Port("x", "BYTES", dims)], [Port("y", "BYTES", dims)])


def test_bytes_are_utf_8_on_both_sides(tmp_path: Path) -> None:
    session = open_session(text_model(tmp_path, -1, 2))
    texts = np.array([["ä€".encode(), b""], [b"nul\0inside\0", b"plain"]], object)
    np.testing.assert_array_equal(session.run({"x": texts})["y"], texts)
    assert session.run({"x": texts[:0]})["y"].shape == (0, 2)
    with pytest.raises(ProtocolError, match=r"input 'x'.*UTF-8"):
        session.run({"x": np.array([[b"\xff", b"a"]], object)})


@pytest.mark.parametrize("text_in", [True, False])
def test_text_beside_bfloat16(tmp_path: Path, text_in: bool) -> None:
    """Text may come out beside it, and cannot go in."""
    constant = helper.make_tensor("value", TensorProto.STRING, [1], ["ä".encode()])
    text = (
        helper.make_node("Identity", ["a"], ["c"])
        if text_in
        else helper.make_node("Constant", [], ["c"], value=constant)
    )
    model = write_model(
        tmp_path,
        "both",
        [text, helper.make_node("Identity", ["b"], ["d"])],
        [*([Port("a", "BYTES", (1,))] if text_in else []), Port("b", "BF16", (1,))],
        [Port("c", "BYTES", (1,)), Port("d", "BF16", (1,))],
    )
    if text_in:
        with pytest.raises(ModelError, match="BYTES beside BF16"):
            open_session(model)
        return
    answer = open_session(model).run({"b": np.ones(1, ml_dtypes.bfloat16)})
    assert (answer["c"].tolist(), answer["d"].tolist()) == (["ä".encode()], [1.0])


def test_an_answer_that_is_no_text_is_the_models_fault(tmp_path: Path) -> None:
    broken = helper.make_tensor("value", TensorProto.STRING, [1], [b"\xff"])
    model = write_model(
        tmp_path,
        "broken",
        [helper.make_node("Constant", [], ["y"], value=broken)],
        [],
        [Port("y", "BYTES", (1,))],
    )
    with pytest.raises(ServerError, match="not UTF-8"):
        open_session(model).run({})
