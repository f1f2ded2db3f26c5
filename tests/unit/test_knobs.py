"""A setting says what a server is, lands where it has an effect, and is never quietly ignored."""

from __future__ import annotations

import importlib.util
import random
import re
import sys
from pathlib import Path
from types import ModuleType

import onnxruntime
import pytest

from loadtest.cli import main
from serving.backends.base import Launch
from serving.deployable import write_deployable
from serving.deployment import Placement, plan_launch
from serving.errors import UsageError
from serving.knobs import (
    KNOBS,
    Room,
    Setting,
    allowed,
    axes,
    canonical,
    default_setting,
    knobs_of,
    parse_setting,
    threads,
)
from serving.knobs.table import WORKER_CLASSES
from serving.models.config import ModelConfig
from serving.models.repository import Model
from tests.sample_models import TINY_CONFIG

ROOT = Path(__file__).parents[2]
STUB_MODEL = ROOT / "serving" / "backends" / "triton" / "onnxruntime_model.py"
LABELS = ("triton", "onnxruntime", "fastapi", "fastapi:torch")
SERVERS = ("triton", "onnxruntime")


@pytest.fixture(autouse=True)
def installed_triton(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A launch can be planned without a server being there."""
    program = tmp_path / "tritonserver"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    monkeypatch.setenv("INFERSWEEP_TRITON", str(program))


def configured(folder: Path, *changes: tuple[str, str]) -> Model:
    """The tiny model with another configuration; it cannot be run."""
    text = TINY_CONFIG
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    (folder / "tiny" / "1").mkdir(parents=True)
    (folder / "tiny" / "1" / "model.onnx").touch()
    (folder / "tiny" / "config.pbtxt").write_text(text)
    return Model(folder, "tiny")


def planned(
    label: str, model: Model, folder: Path, setting: Setting, cpus: int = 2
) -> tuple[Launch, ModelConfig]:
    placement = Placement(tuple(range(cpus)), cpus, port=8000, setting=setting)
    launch, placed = plan_launch(
        label, model, placement, repository=folder / "placed", work_folder=folder
    )
    return launch, placed.config


def told(launch: Launch) -> list[str]:
    """The command, without what is different at each launch."""
    return [re.sub(r"\d{4,5}", "PORT", part) for part in launch.argv]


@pytest.mark.parametrize("label", ["triton", "onnxruntime", "fastapi"])
def test_the_default_setting_is_what_is_launched_without_one(
    label: str, tiny: Model, tmp_path: Path
) -> None:
    plain, before = planned(label, tiny, tmp_path, {})
    stated, after = planned(label, tiny, tmp_path, default_setting(label, Room(2, tiny.config)))
    assert told(plain) == told(stated)
    assert (before.execution, before.max_batch_size) == (after.execution, after.max_batch_size)
    assert before.dynamic_batching == after.dynamic_batching
    assert "setting" not in plain.facts
    names = set(default_setting(label, Room(2, tiny.config)))
    assert {word.partition("=")[0] for word in stated.facts["setting"].split()} == names


@pytest.mark.parametrize("label", LABELS)
@pytest.mark.parametrize("cpus", [1, 2, 7])
def test_every_axis_offers_its_default_and_other_values_that_can_be_read(
    label: str, cpus: int, tiny: Model
) -> None:
    room = Room(cpus, tiny.config)
    default = default_setting(label, room)
    assert allowed(label, default, room) == ""
    assert canonical(label, {}, room) == default
    for axis in axes(label, room):
        knob = KNOBS[axis.knob]
        assert axis.default == default[axis.knob]
        assert axis.default in axis.values
        assert len(set(axis.values)) == len(axis.values) > 1
        assert [knob.read(value) for value in axis.values] == list(axis.values)


def test_counts_of_threads_go_up_to_the_room(tiny: Model) -> None:
    found = {axis.knob: axis for axis in axes("triton", Room(6, tiny.config, oversubscribe=1.5))}
    assert found["instances"].values == ("1", "2", "3", "4", "6", "8", "9")
    assert found["replicas"].values[-1] == "6"
    assert "instances" not in {axis.knob for axis in axes("triton", Room(1, tiny.config))}


def test_batch_sizes_go_up_to_what_the_model_takes(tmp_path: Path) -> None:
    model = configured(tmp_path, ("max_batch_size: 8", "max_batch_size: 48"))
    found = {axis.knob: axis for axis in axes("onnxruntime", Room(1, model.config))}
    assert found["max_batch_size"].values == ("1", "2", "4", "8", "16", "32", "48")
    assert found["max_batch_size"].default == "48"


def test_a_model_without_batches_has_no_knob_of_batching(tmp_path: Path) -> None:
    model = configured(
        tmp_path,
        ("max_batch_size: 8", "max_batch_size: 0"),
        ("dynamic_batching { max_queue_delay_microseconds: 0 }", ""),
    )
    room = Room(2, model.config)
    offered = {axis.knob for axis in axes("triton", room)}
    assert not offered & {"max_batch_size", "queue_delay_us"}
    assert "never joined" in allowed("triton", {"queue_delay_us": "100"}, room)
    assert allowed("triton", default_setting("triton", room), room) == ""


@pytest.mark.parametrize("label", SERVERS)
def test_what_is_set_stands_in_the_configuration(label: str, tiny: Model, tmp_path: Path) -> None:
    setting = {
        "instances": "3",
        "intra_op_threads": "2",
        "execution_mode": "parallel",
        "inter_op_threads": "4",
        "max_batch_size": "4",
        "queue_delay_us": "500",
        "memory_arena": "off",
    }
    launch, config = planned(label, tiny, tmp_path, setting)
    execution = config.execution
    assert (execution.instances, execution.intra_op_threads) == (3, 2)
    assert (execution.parallel, execution.inter_op_threads) == (True, 4)
    assert (execution.memory_arena, execution.memory_pattern) == (False, True)
    assert config.max_batch_size == 4
    assert config.dynamic_batching is not None
    assert config.dynamic_batching.max_queue_delay_ns == 500_000
    assert launch.facts["setting"] == " ".join(f"{key}={value}" for key, value in setting.items())
    # Three sessions, each with two threads in an operator and three more for other operators.
    assert launch.warnings[-1].startswith("15 inference threads")


def test_the_batcher_is_taken_out_and_put_in(tiny: Model, tmp_path: Path) -> None:
    _, config = planned("onnxruntime", tiny, tmp_path / "a", {"queue_delay_us": "off"})
    assert config.dynamic_batching is None
    without = configured(
        tmp_path / "b", ("dynamic_batching { max_queue_delay_microseconds: 0 }", "")
    )
    assert default_setting("onnxruntime", Room(1, without.config))["queue_delay_us"] == "off"
    _, config = planned("onnxruntime", without, tmp_path / "c", {"queue_delay_us": "1000"})
    assert config.dynamic_batching is not None
    assert config.dynamic_batching.max_queue_delay_ns == 1_000_000


def test_a_smaller_batch_takes_preferred_sizes_and_warm_ups_with_it(tmp_path: Path) -> None:
    warm_up = (
        'model_warmup { name: "w" batch_size: 8 inputs { key: "x" '
        "value { data_type: TYPE_FP32 dims: 64 zero_data: true } } }"
    )
    model = configured(
        tmp_path,
        ("microseconds: 0 }", "microseconds: 0 preferred_batch_size: [ 2, 8 ] }\n" + warm_up),
    )
    _, config = planned("triton", model, tmp_path / "to", {"max_batch_size": "4"})
    assert config.dynamic_batching is not None
    assert config.dynamic_batching.preferred_batch_sizes == (2,)
    assert config.warm_ups[0].rows == 4


def test_what_is_set_stands_in_the_command(tiny: Model, tmp_path: Path) -> None:
    launch, _ = planned("triton", tiny, tmp_path, {"http_threads": "5"})
    assert "--http-thread-count=5" in launch.argv
    launch, _ = planned("triton", tiny, tmp_path, {"replicas": "3"})
    assert {"--metrics-port={port}", "--reuse-http-port=true"} <= set(launch.argv)
    assert launch.metrics_url is None
    ports = launch.argv[launch.argv.index(next(p for p in launch.argv if "," in p))].split(",")
    assert [f"http://127.0.0.1:{port}/metrics" for port in ports] == list(launch.metrics_urls)
    assert len(set(ports)) == 3
    setting = {"workers": "3", "worker_threads": "2", "worker_class": WORKER_CLASSES[1]}
    launch, _ = planned("fastapi", tiny, tmp_path, setting)
    assert launch.argv[launch.argv.index("--workers") + 1] == "3"
    assert launch.argv[launch.argv.index("--worker-class") + 1] == WORKER_CLASSES[1]
    assert launch.env["INFERSWEEP_FASTAPI_INFERENCE_THREADS"] == "2"
    assert launch.worker_count == 3


@pytest.mark.parametrize("label", ["triton", "onnxruntime", "fastapi"])
def test_what_is_set_stands_in_the_environment(label: str, tiny: Model, tmp_path: Path) -> None:
    launch, _ = planned(label, tiny, tmp_path, {"malloc_arenas": "2"})
    assert launch.env["MALLOC_ARENA_MAX"] == "2"
    launch, _ = planned(label, tiny, tmp_path, {"malloc_arenas": "default"})
    assert "MALLOC_ARENA_MAX" not in launch.env


def test_the_container_is_given_the_environment(
    tiny: Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("INFERSWEEP_TRITON", "container")
    launch, _ = planned("triton", tiny, tmp_path, {"malloc_arenas": "1"})
    assert launch.argv[launch.argv.index("--env") + 1] == "MALLOC_ARENA_MAX=1"


@pytest.mark.parametrize(
    ("label", "texts", "said"),
    [
        ("triton", ["wrkers=2"], "triton has no knob 'wrkers'. Its knobs: instances, "),
        ("triton", ["workers=2"], "triton has no knob 'workers'"),
        ("fastapi", ["queue_delay_us=0"], "fastapi has no knob 'queue_delay_us'"),
        ("fastapi:torch", ["memory_arena=off"], "fastapi:torch has no knob 'memory_arena'"),
        ("null", ["instances=1"], "null has no knob 'instances'. It has none at all"),
        ("triton", ["instances"], "'instances' sets nothing"),
        ("triton", ["instances=1", "instances=2"], "instances is set twice"),
        ("triton", ["instances=0"], "instances=0 cannot be set. Write a whole number of 1"),
        ("triton", ["instances=-1"], "instances=-1 cannot be set"),
        ("triton", ["queue_delay_us=on"], "queue_delay_us=on cannot be set"),
        ("triton", ["execution_mode=fast"], "Write sequential or parallel"),
        ("fastapi", ["worker_class=sync"], f"Write {' or '.join(WORKER_CLASSES)}"),
        ("triton", ["malloc_arenas="], "malloc_arenas= cannot be set"),
    ],
)
def test_mistakes_of_the_user(label: str, texts: list[str], said: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_setting(label, texts)
    assert said in str(caught.value)


def test_a_value_is_read_in_its_one_form() -> None:
    assert parse_setting("triton", ["instances=02", "queue_delay_us=0100"]) == {
        "instances": "2",
        "queue_delay_us": "100",
    }


@pytest.mark.parametrize(
    ("setting", "why"),
    [
        ({"inter_op_threads": "2"}, "needs execution_mode=parallel"),
        ({"execution_mode": "parallel"}, "needs inter_op_threads of 2 or more"),
        (
            {"execution_mode": "parallel", "inter_op_threads": "2", "memory_pattern": "off"},
            "needs execution_mode=sequential",
        ),
        ({"max_batch_size": "1", "queue_delay_us": "100"}, "waits for nothing"),
        ({"max_batch_size": "4", "queue_delay_us": "off"}, "joins nothing"),
        ({"max_batch_size": "9"}, "outside 1 to 8"),
        ({"max_batch_size": "0"}, "outside 1 to 8"),
    ],
)
def test_what_has_no_effect_is_neither_allowed_nor_launched(
    setting: Setting, why: str, tiny: Model, tmp_path: Path
) -> None:
    room = Room(64, tiny.config)
    assert why in allowed("onnxruntime", setting, room)
    with pytest.raises(UsageError, match=why):
        planned("onnxruntime", tiny, tmp_path, setting)


def test_an_arena_that_the_model_shrinks_is_not_turned_off(tmp_path: Path) -> None:
    shrinks = (
        'parameters { key: "memory.enable_memory_arena_shrinkage" '
        'value { string_value: "cpu:0" } }\nparameters { key: "inter'
    )
    model = configured(tmp_path, ('parameters { key: "inter', shrinks))
    assert "shrinkage" in allowed("triton", {"memory_arena": "off"}, Room(1, model.config))


@pytest.mark.parametrize(
    ("label", "setting", "needed"),
    [
        ("triton", {"instances": "2", "intra_op_threads": "2"}, 4),
        ("triton", {"instances": "1", "replicas": "3"}, 3),
        ("fastapi", {"workers": "2", "worker_threads": "2", "intra_op_threads": "2"}, 8),
        (
            "onnxruntime",
            {"instances": "2", "execution_mode": "parallel", "inter_op_threads": "3"},
            6,
        ),
    ],
)
def test_threads_stay_within_the_room(
    label: str, setting: Setting, needed: int, tiny: Model
) -> None:
    assert threads(canonical(label, setting, Room(1, tiny.config))) == needed
    assert allowed(label, setting, Room(needed, tiny.config)) == ""
    assert allowed(label, setting, Room(needed - 1, tiny.config)).startswith(f"{needed} inference")
    assert allowed(label, setting, Room(1, tiny.config, oversubscribe=needed)) == ""


def test_settings_of_the_same_server_are_equal(tiny: Model) -> None:
    room = Room(4, tiny.config)

    def same(*settings: Setting) -> bool:
        first, *others = (canonical("triton", setting, room) for setting in settings)
        return all(first == other for other in others)

    assert same({}, {"instances": "4"}, {"inter_op_threads": "3"}, {"execution_mode": "parallel"})
    assert same({"max_batch_size": "1", "queue_delay_us": "500"}, {"max_batch_size": "1"})
    assert same({"queue_delay_us": "off"}, {"queue_delay_us": "off", "max_batch_size": "2"})
    assert not same({}, {"execution_mode": "parallel", "inter_op_threads": "2"})
    assert not same({"max_batch_size": "1"}, {})


def test_modes_are_equal_where_the_model_itself_is_parallel(tmp_path: Path) -> None:
    mode = 'parameters { key: "execution_mode" value { string_value: "1" } }\n'
    inter = 'parameters { key: "inter_op_thread_count" value { string_value: '
    model = configured(tmp_path, (f'{inter}"1"', f'{mode}{inter}"2"'))
    room = Room(4, model.config)
    sequential = canonical("triton", {"execution_mode": "sequential"}, room)
    assert canonical("triton", {"inter_op_threads": "1"}, room) == sequential
    assert canonical("triton", {}, room) != sequential


@pytest.mark.parametrize("label", LABELS)
def test_a_canonical_setting_is_refused_for_its_threads_alone(label: str, tiny: Model) -> None:
    room, chance = Room(3, tiny.config), random.Random(7)
    offered = axes(label, room)
    for _ in range(300):
        setting = {axis.knob: chance.choice(axis.values) for axis in offered}
        full = canonical(label, setting, room)
        assert canonical(label, full, room) == full
        assert set(full) == set(knobs_of(label))
        why_not = allowed(label, full, room)
        assert bool(why_not) == (threads(full) > 3)
        assert "inference threads" in why_not or not why_not


def test_the_command_line_refuses_a_knob_before_anything_starts(
    tiny: Model, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["serve", "--backend", "onnxruntime", "--model", "tiny"]
    where = ["--repository", str(tiny.root), "--set", "http_threads=2"]
    monkeypatch.setattr(sys, "argv", ["infersweep", *arguments, *where])
    with pytest.raises(SystemExit) as left:
        main()
    assert left.value.code == 2
    assert "onnxruntime has no knob 'http_threads'" in capsys.readouterr().err


@pytest.mark.parametrize(
    "placement",
    [
        Placement((0,), 1, instances=2, setting={"instances": "1"}),
        Placement((0,), 1, intra_op_threads=2, setting={"intra_op_threads": "1"}),
    ],
)
def test_what_is_stated_twice_is_refused(placement: Placement, tiny: Model, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="stated twice"):
        plan_launch("onnxruntime", tiny, placement, repository=tmp_path, work_folder=tmp_path)


def test_the_stub_of_triton_opens_its_session_as_it_is_set(
    tiny: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "triton_python_backend_utils", ModuleType("stub"))
    spec = importlib.util.spec_from_file_location("stub_model", STUB_MODEL)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    modes = onnxruntime.ExecutionMode

    def opened(**parameters: str) -> onnxruntime.SessionOptions:
        stated = {key: {"string_value": value} for key, value in parameters.items()}
        return module.open_session(tiny.file, stated).get_session_options()

    plain = opened()
    assert plain.execution_mode == modes.ORT_SEQUENTIAL
    assert plain.enable_cpu_mem_arena
    assert plain.enable_mem_pattern
    turned = opened(
        execution_mode="1",
        inter_op_thread_count="2",
        enable_mem_arena="0",
        enable_mem_pattern="0",
    )
    assert turned.execution_mode == modes.ORT_PARALLEL
    assert turned.inter_op_num_threads == 2
    assert not turned.enable_cpu_mem_arena
    assert not turned.enable_mem_pattern


def test_a_deployed_triton_is_one_plain_line_for_each_replica(tiny: Model, tmp_path: Path) -> None:
    setting = {"instances": "1", "replicas": "2", "http_threads": "3", "malloc_arenas": "1"}
    made = write_deployable("triton", tiny, setting, Placement((0, 1), 2), tmp_path)
    first, second = made.commands
    assert first.startswith("MALLOC_ARENA_MAX=1 tritonserver --model-repository=model_repository ")
    assert "--http-port=8000 --http-thread-count=3 " in first
    assert first.replace("--metrics-port=8002", "--metrics-port=8003") == second
    assert "--reuse-http-port=true" in first
    placed = Model(tmp_path / "model_repository", "tiny")
    assert placed.config.instances == 1
    assert placed.file.read_bytes() == tiny.file.read_bytes()


def test_what_is_not_ours_to_start_is_not_deployed(tiny: Model, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="not deployed"):
        write_deployable("null", tiny, {}, Placement((0,), 1), tmp_path / "none")
    assert not (tmp_path / "none").exists()


def test_the_documentation_lists_the_knobs_as_they_are() -> None:
    text = (ROOT / "docs" / "tuning-knobs.md").read_text()
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in text.splitlines()
        if line.startswith("| `")
    ]
    documented = {
        row[0].strip("`"): (tuple(re.findall(r"`(\w+)`", row[2])), row[4].partition(":")[0])
        for row in rows
    }
    assert documented == {name: (knob.backends, knob.lands) for name, knob in KNOBS.items()}
