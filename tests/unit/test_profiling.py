"""Where a model's time goes: operators of a trace, stacks of a server; captured samples."""

from __future__ import annotations

import pytest

from loadtest.cli import main
from loadtest.profiling.operators import NoRunsError, calls_of, operators_of, runs_of
from loadtest.profiling.record import Observer
from loadtest.profiling.runs import Kernel, repeat
from loadtest.profiling.server import Moments, observer_of, seen
from loadtest.profiling.spy import fault_of, find_spy, understood
from loadtest.profiling.stacks import (
    INFERENCE,
    WAITING,
    functions_of,
    group_of,
    name_of,
    parse,
    readable,
    tree_of,
)
from loadtest.profiling.wording import observer_text, sentence_of
from serving.errors import MachineError, ServerError, UsageError

NETWORK = "HTTP, gRPC and the event loop"
CPU = "CPUExecutionProvider"

# Of the last two of four runs of flight_policy: begin, length in microseconds, name, type.
KERNELS = (
    (41739, 3, "Unsqueeze_3", "Unsqueeze"),
    (41744, 3, "fused ", "FusedGemm"),
    (41752, 2, "Unsqueeze_2", "Unsqueeze"),
    (41756, 7, "GRU_4", "GRU"),
    (41769, 3, "Squeeze_5", "Squeeze"),
    (41774, 2, "Gemm_6", "Gemm"),
    (41795, 3, "Unsqueeze_3", "Unsqueeze"),
    (41799, 2, "fused ", "FusedGemm"),
    (41807, 2, "Unsqueeze_2", "Unsqueeze"),
    (41813, 6, "GRU_4", "GRU"),
    (41822, 3, "Squeeze_5", "Squeeze"),
    (41829, 2, "Gemm_6", "Gemm"),
)
RUNS = ((41736, 46), (41793, 45))
TRACE = [
    {"cat": "Session", "ts": 7, "dur": 414, "name": "model_loading_uri", "args": {}},
    *(
        {
            "cat": "Node",
            "ts": begin,
            "dur": length,
            "name": f"{name}_kernel_time",
            "args": {"op_name": op_type, "provider": CPU},
        }
        for begin, length, name, op_type in KERNELS
    ),
    *(
        {"cat": "Session", "ts": begin, "dur": length, "name": "model_run", "args": {}}
        for begin, length in RUNS
    ),
]

SERVER = (
    'process 13915:"/srv/bin/python -I -S /srv/serving/supervise.py /srv/bin/python -m '
    'serving.backends.onnxruntime --port 52375";process 13916:"/srv/bin/python -m '
    'serving.backends.onnxruntime --port 52375"'
)
ORT = "onnxruntime/capi/onnxruntime_pybind11_state.cpython-311-x86_64-linux-gnu.so"
LOOP = (
    "0x7f7faf24524a (libc.so.6);_run_module_as_main (<frozen runpy>:198);"
    "run (uvloop/__init__.py:92);Runner.run (asyncio/runners.py:118);"
    "run_until_complete (loop.c:35410);run_until_complete (loop.c:35886);"
    "Py_XDECREF (object.h:602);Py_DECREF (object.h:537);uv_run (core.c:464);"
)
BATCHER = (
    "Thread._bootstrap (threading.py:1002);Batcher._serve (serving/batching/batcher.py:149);"
    "Session.run (serving/session.py:89);"
    "Session.run (onnxruntime/capi/onnxruntime_inference_collection.py:395);"
)
FOLDED = f"""\
{SERVER};{LOOP}uv__io_poll (linux.c:1452);epoll_pwait (libc.so.6) 139
{SERVER};{LOOP}uv__io_poll (linux.c:1546);uv__read (stream.c:1063);read (libc.so.6) 18
{SERVER};{BATCHER}0x7f7fa628d16a ({ORT});0x7f7fa628d16b ({ORT}) 4
{SERVER};0x7f7faf3278ec (libc.so.6);thread_run (libpython3.11.so.1.0);{BATCHER}0x7f1 ({ORT}) 3
{SERVER};{LOOP}Handle__run (loop.c:70906);Batcher._dispatch (serving/batching/batcher.py:139) 2
"""


def test_operators_are_added_up_by_type_over_the_runs_behind_the_warm_up() -> None:
    runs = runs_of(TRACE, warm_up=0)
    assert runs.count == len(RUNS)
    assert runs.session_ms == pytest.approx(sum(length for _, length in RUNS) / len(RUNS) / 1e3)
    whole = sum(length for _, length, _, _ in KERNELS)
    assert runs.kernels_ms == pytest.approx(whole / len(RUNS) / 1e3)
    first = runs.by_type[0]
    gru = [length for _, length, _, op_type in KERNELS if op_type == "GRU"]
    assert (first.op_type, first.node, first.provider, first.calls) == ("GRU", None, CPU, len(gru))
    assert first.total_ms == pytest.approx(sum(gru) / 1e3)
    assert first.share == pytest.approx(sum(gru) / whole)
    assert first.mean_us == pytest.approx(sum(gru) / len(gru))
    assert sum(one.share for one in runs.by_type) == pytest.approx(1)


def test_a_node_keeps_its_own_line() -> None:
    unsqueezed = [one for one in runs_of(TRACE, 0).by_node if one.op_type == "Unsqueeze"]
    assert {one.node for one in unsqueezed} == {"Unsqueeze_2", "Unsqueeze_3"}


def test_kernels_of_the_warm_up_do_not_count() -> None:
    begin, length = RUNS[1]
    runs = runs_of(TRACE, warm_up=1)
    assert runs.session_ms == pytest.approx(length / 1e3)
    assert runs.kernels_ms == pytest.approx(sum(k[1] for k in KERNELS if k[0] >= begin) / 1e3)


def test_a_trace_of_nothing_but_warm_up_is_refused() -> None:
    with pytest.raises(NoRunsError):
        runs_of(TRACE, warm_up=len(RUNS))


def test_an_operator_of_pytorch_that_only_calls_others_is_left_out() -> None:
    kernels = (
        Kernel(name="aten::conv2d", calls=2, self_us=0.0),
        Kernel(name="aten::mm", calls=4, self_us=8.0),
    )
    (only,) = operators_of(calls_of(kernels), by=lambda call: (call.op_type, None, call.provider))
    assert (only.op_type, only.calls, only.share, only.mean_us) == ("aten::mm", 4, 1.0, 2.0)


def test_runs_end_at_their_number_and_go_past_the_warm_up() -> None:
    seen_rows: list[str] = []
    assert repeat(seen_rows.append, ["a", "b"], seconds=60, most=6) == 6
    assert seen_rows == ["a", "b"] * 3
    assert repeat(seen_rows.append, ["a"], seconds=0, most=6) == 4


def test_a_process_is_called_what_a_person_calls_it() -> None:
    assert name_of("/usr/bin/python3.11 -m gunicorn app:create() --workers 1") == "gunicorn"
    assert name_of("/srv/bin/python -I -S /srv/serving/supervise.py python x.py") == "supervise.py"
    assert name_of("/opt/tritonserver/bin/tritonserver --http-port=1") == "tritonserver"
    assert name_of("python 'half quoted") == "python"
    assert name_of("") == "?"


def test_folded_lines_become_stacks_without_lines_addresses_and_the_threads_beginning() -> None:
    stacks = parse(FOLDED)
    assert [stack.count for stack in stacks] == [139, 18, 4, 3, 2]
    assert stacks[0].processes == (
        (13915, "supervise.py"),
        (13916, "serving.backends.onnxruntime"),
    )
    assert stacks[0].frames[:2] == (
        "_run_module_as_main (<frozen runpy>)",
        "run (uvloop/__init__.py)",
    )
    assert stacks[0].frames[3:] == (
        "run_until_complete (loop.c)",
        "uv_run (core.c)",
        "uv__io_poll (linux.c)",
        "epoll_pwait (libc.so.6)",
    )
    # Unwound from elsewhere and at other addresses, they are the same stack.
    assert stacks[2].frames == stacks[3].frames
    assert stacks[2].frames[-1] == f"({ORT})"


def test_lines_that_are_no_stack_are_left_out() -> None:
    assert parse("py-spy> Sampling\n\nmain (a.py:3);no count here\n") == ()
    (lone,) = parse(f"{SERVER} 7")
    assert (len(lone.processes), lone.frames, lone.count) == (2, (), 7)


def test_a_stack_is_counted_for_what_its_innermost_function_does() -> None:
    assert [stack.group for stack in parse(FOLDED)] == [
        WAITING,
        NETWORK,
        INFERENCE,
        INFERENCE,
        "batching",
    ]


def test_a_wait_inside_the_runtime_is_inference() -> None:
    frames = ("run (serving/session.py)", f"({ORT})", "futex_wait (libc.so.6)")
    assert group_of(frames) == INFERENCE
    assert group_of((frames[0], frames[2])) == WAITING


def test_a_wait_is_known_without_native_frames_where_python_tells() -> None:
    assert group_of(("_worker (thread.py)", "Condition.wait (threading.py)")) == WAITING
    assert group_of(("Condition.wait (threading.py)", "_clear (threading.py)")) != WAITING


def test_the_tree_holds_every_busy_sample_once() -> None:
    stacks = parse(FOLDED)
    tree = tree_of(stacks, "server")
    busy = sum(stack.count for stack in stacks if stack.group != WAITING)
    assert tree.count == busy == 18 + 4 + 3 + 2
    (first,) = tree.children.values()
    assert (first.name, first.count) == ("supervise.py (13915)", busy)
    (worker,) = first.children.values()
    assert {child.count for child in worker.children.values()} == {18 + 2, 4 + 3}
    groups = {child.group for child in worker.children.values()}
    assert groups == {NETWORK, INFERENCE}


def test_functions_are_counted_where_the_time_was_spent() -> None:
    assert functions_of(parse(FOLDED)) == [
        ("read (libc.so.6)", NETWORK, 18),
        (f"({ORT})", INFERENCE, 7),
        ("Batcher._dispatch (serving/batching/batcher.py)", "batching", 2),
    ]


def test_libraries_are_named_for_people() -> None:
    assert readable(f"({ORT})") == "in onnxruntime_pybind11_state"
    assert readable("recv (grpc/cygrpc.cpython-311-x86_64-linux-gnu.so)") == "recv (grpc/cygrpc.so)"
    assert readable("_RNvNtCs8_3std4park (a/_native.abi3.so)") == "… (a/_native.so)"


def test_a_process_without_samples_says_why() -> None:
    processes = [
        (13915, "/srv/bin/python /srv/serving/supervise.py", True),
        (13916, "/srv/bin/python -m serving.backends.onnxruntime", True),
        (13917, "/opt/tritonserver", False),
    ]
    arbiter, worker, native = seen(processes, parse(FOLDED))
    assert (arbiter.samples, arbiter.note) == (0, "slept all the time")
    assert (worker.samples, worker.note) == (27, "")
    assert "no Python" in native.note


def test_sampling_is_held_against_what_is_around_it_and_partial_seconds_are_left_out() -> None:
    # py-spy is started 2.4 s into the window, reads from 3.2 s to 5.9 s, and leaves at 6.5 s.
    moments = Moments(started_s=102.4, begun_s=103.2, ended_s=105.9, left_s=106.5)
    found = observer_of((50, 40, 999, 999, 30, 999, 999, 48), 100.0, moments)
    alone = (50 + 40 + 48) / 3
    assert found == Observer(before_rps=45, sampled_rps=30, after_rps=48, ratio=30 / alone)
    assert "35% slower" in observer_text(found)
    assert "Lower --rate" in observer_text(found)
    assert observer_of((50, 40, 30, 30, 30, 30), 100.0, moments) is None
    assert "not known" in observer_text(None)


def test_a_machine_that_is_not_quiet_is_said_so() -> None:
    loud = Observer(before_rps=40, sampled_rps=52, after_rps=50, ratio=1.2)
    assert "as fast as without" in observer_text(loud)
    assert "is the machine quiet?" in observer_text(loud)


def test_what_py_spy_prints_at_its_end_is_understood() -> None:
    told = understood(
        "py-spy> Sampling process 100 times a second for 4 seconds. Press Control-C to exit.\n"
        "py-spy> 1.02s behind in sampling, results may be inaccurate. Try reducing the rate\n"
        "py-spy> Wrote raw flamegraph data to 'stacks.txt'. Samples: 618 Errors: 3\n"
    )
    assert told is not None
    assert (told.samples, told.errors, told.behind_s) == (618, 3, 1.02)
    assert understood("py-spy> Sampling process 100 times a second") is None


NO_PYTHON = """\
Error: No python processes found in process 7 or any of its subprocesses

Stack backtrace:
   0: anyhow::error::<impl anyhow::Error>::msg
"""


def test_what_py_spy_may_not_read_comes_with_the_next_step() -> None:
    """It says the same of a family without Python, and of one that it may not read."""
    refused = fault_of(NO_PYTHON, 7, python=True)
    assert isinstance(refused, MachineError)
    assert "ptrace_scope" in refused.hint
    assert "SYS_PTRACE" in refused.hint
    assert str(fault_of("Error: Permission denied\n", 7, python=False)) == str(refused)
    foreign = fault_of(NO_PYTHON, 7, python=False)
    assert isinstance(foreign, ServerError)
    assert "no Python" in str(foreign)


def test_what_else_py_spy_fails_of_is_told_in_its_words() -> None:
    told = fault_of("Error: out of luck\n\nStack backtrace:\n 0: main\n", 7, python=True)
    assert str(told).startswith("py-spy failed: out of luck. ")
    assert "did not come to its end" in str(fault_of("", 7, python=True))


def test_nothing_profiled_is_said_so() -> None:
    assert sentence_of(None, None, None) == "Nothing could be profiled."


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--model", "no_such_model"], "no_such_model"),
        (["--backend", "no_such_backend"], "no_such_backend"),
        (["--backend", "remote:http://127.0.0.1:9"], "remote"),
        (["--backend", "onnxruntime,fastapi"], "names 2"),
        (["--duration", "0"], "--duration"),
    ],
)
def test_bad_input_is_one_clear_line(
    words: list[str], told: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.argv", ["infersweep", "profile-model", *words])
    with pytest.raises(SystemExit) as left:
        main()
    assert left.value.code in (UsageError.exit_code, 5)
    error = capsys.readouterr().err
    assert told in error
    assert error.count("\n") == 1


def test_without_py_spy_the_next_step_is_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.executable", "/nowhere/python")
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(MachineError, match=r"not installed.*make setup"):
        find_spy()
