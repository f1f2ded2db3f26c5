"""Variants made for real, of the tiny model and of the zoo's classifier: kept or refused."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from typer.testing import CliRunner

from loadtest.cli import app
from serving.backends.fastapi.engines import TORCH_ENGINES
from serving.deployment import Placement, plan_launch, running
from serving.deriving.derive import Derived, Limits, derive
from serving.errors import InfersweepError, MachineError, ModelError, UsageError
from serving.models.config import load_message
from serving.models.execution import parse_execution
from serving.models.repository import DEFAULT_ROOT, Model, find_model
from serving.models.samples import samples_for
from serving.models.variants.kind import Order
from serving.models.variants.parameters import read_record
from serving.models.variants.registry import KINDS
from serving.models.variants.tensorrt import INT8
from serving.models.zoo.build import ensure_built
from serving.parity import check_parity, reference_for
from serving.session import open_session
from tests.integration.test_sweep import Listener, short, sweep
from tests.sample_models import Port, write_model, write_tiny

STRICT, LENIENT = Limits(0.0), Limits(1.0)
ANYTHING = Limits(0.0, keep_anyway=True)


def make(model: Model, kind: str, limits: Limits = LENIENT, **order: object) -> Derived:
    return derive(Order(model, **order), KINDS[kind], limits, lambda _: None)  # type: ignore[arg-type]


def names(root: Path) -> list[str]:
    return sorted(path.name for path in root.iterdir())


@pytest.fixture
def tiny_here(tmp_path: Path) -> Model:
    """A repository of its own, which a test may write into."""
    return write_tiny(tmp_path / "models")


@pytest.fixture(scope="module")
def classifier(tmp_path_factory: pytest.TempPathFactory) -> Model:
    ensure_built(find_model("image_classifier"), print)
    root = tmp_path_factory.mktemp("repository")
    shutil.copytree(DEFAULT_ROOT / "image_classifier", root / "image_classifier")
    return Model(root, "image_classifier")


def calibration(model: Model) -> dict[str, object]:
    return {"calibration": samples_for(model), "calibration_source": "8 inputs"}


def test_a_static_variant_is_a_sibling_with_its_accuracy(tiny_here: Model) -> None:
    made = make(tiny_here, "int8-static", **calibration(tiny_here))
    found = Model(tiny_here.root, "tiny-int8-static")
    record = read_record(found.config)
    assert record == made.record
    assert record is not None
    assert (record.of, record.kind, record.inputs) == ("tiny", "int8-static", 8)
    assert found.config.inputs == tiny_here.config.inputs
    assert found.config.max_batch_size == tiny_here.config.max_batch_size
    right, session = open_session(tiny_here), open_session(found)
    differences = [
        np.abs(right.run(s.inputs)["y"] - session.run(s.inputs)["y"]) for s in samples_for(found)
    ]
    assert record.largest_difference == pytest.approx(float(np.max(differences)), rel=1e-6)
    assert record.mean_difference == pytest.approx(float(np.mean(differences)), rel=1e-6)
    assert 0 < record.largest_difference < 0.5
    # The inputs of this model were made up, and that is told.
    assert "made up" in made.notes[0]


def test_rows_that_share_their_ranges_are_never_joined(tiny_here: Model) -> None:
    made = make(tiny_here, "int8-dynamic")
    config = Model(tiny_here.root, "tiny-int8-dynamic").config
    assert config.max_batch_size == 0
    assert config.dynamic_batching is None
    assert [spec.dims for spec in (*config.inputs, *config.outputs)] == [(1, 64), (1, 10)]
    assert any("max_batch_size is 0" in note for note in made.notes)
    # It is so: the same row beside a larger one has another answer.
    session = open_session(made.model)
    row = samples_for(tiny_here)[0].inputs["x"]
    together = session.run({"x": np.concatenate([row, 50 * row])})["y"][:1]
    assert np.abs(together - session.run({"x": row})["y"]).max() > 1e-3


@pytest.mark.parametrize("backend", ["onnxruntime", "fastapi"])
@pytest.mark.parametrize("kind", ["int8-static", "int8-dynamic"])
def test_a_variant_is_served_as_its_own_reference_says(
    tiny_here: Model, kind: str, backend: str, tmp_path: Path
) -> None:
    inputs = calibration(tiny_here) if kind == "int8-static" else {}
    variant = make(tiny_here, kind, **inputs).model
    reference = reference_for(variant)
    placement = Placement(cpus=(0,), usable_cpus=1)
    with running(backend, variant, placement, repository=tmp_path / "r", logs=tmp_path) as server:
        assert check_parity(server.url, server.model, reference).passed
        wrong = check_parity(server.url, server.model, reference_for(tiny_here))
        assert not wrong.passed


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        ("int8-static", "no real inputs to calibrate on"),
        ("pruned", "no Conv channel"),
        ("simplified", "nothing to simplify"),
        ("fp16", "has no FP16 kernel for any of its 2 operators with weights"),
    ],
)
def test_what_is_refused_leaves_nothing(tiny_here: Model, kind: str, reason: str) -> None:
    with pytest.raises(ModelError, match=reason):
        make(tiny_here, kind)
    assert names(tiny_here.root) == ["tiny"]


def test_a_drop_above_the_limit_is_refused(tiny_here: Model, tmp_path: Path) -> None:
    other = write_tiny(tmp_path / "other", seed=8)
    brought = make(other, "int8-static", **calibration(other)).model.file
    drop = make(tiny_here, "qat", ANYTHING, brought=brought).record.drop
    assert drop > 0.2
    shutil.rmtree(tiny_here.root / "tiny-qat")
    with pytest.raises(ModelError, match=rf"its drop is {drop:.1%} \(top-1, 8 inputs\), more than"):
        make(tiny_here, "qat", Limits(drop - 0.01), brought=brought)
    assert names(tiny_here.root) == ["tiny"]
    assert make(tiny_here, "qat", Limits(drop), brought=brought).record.drop == drop


def test_what_is_refused_may_be_kept_anyway(tiny_here: Model) -> None:
    made = make(tiny_here, "fp16", ANYTHING)
    assert any("no FP16 kernel" in note and "its parent's time" in note for note in made.notes)
    assert made.record.size_bytes < 0.7 * made.record.parent_size_bytes
    assert names(tiny_here.root) == ["tiny", "tiny-fp16"]


def test_an_existing_variant_is_not_overwritten(tiny_here: Model) -> None:
    before = make(tiny_here, "int8-dynamic").model.sha256()
    with pytest.raises(ModelError, match="exists already"):
        make(tiny_here, "int8-dynamic")
    assert Model(tiny_here.root, "tiny-int8-dynamic").sha256() == before


def test_a_tool_that_fails_is_quoted(tiny_here: Model) -> None:
    tiny_here.file.write_bytes(b"no model")
    with pytest.raises(InfersweepError, match="tiny-int8-dynamic cannot be made"):
        make(tiny_here, "int8-dynamic")
    assert names(tiny_here.root) == ["tiny"]


@pytest.mark.parametrize("kind", ["tensorrt-fp16", "tensorrt-int8"])
def test_tensorrt_is_refused_where_there_is_none(tiny_here: Model, kind: str) -> None:
    with pytest.raises(MachineError):
        make(tiny_here, kind, **(calibration(tiny_here) if kind == "tensorrt-int8" else {}))
    assert names(tiny_here.root) == ["tiny"]


def test_a_tensorrt_variant_states_precision_table_and_workspace(tiny_here: Model) -> None:
    order = Order(tiny_here, workspace_bytes=1 << 30, **calibration(tiny_here))  # type: ignore[arg-type]
    message = load_message(tiny_here.folder / "config.pbtxt")
    INT8.configure(message, order)
    tensorrt = parse_execution(message, "config.pbtxt").tensorrt
    assert tensorrt is not None
    assert tensorrt.options["trt_int8_enable"] == "1"
    assert tensorrt.options["trt_max_workspace_size"] == str(1 << 30)
    target = tiny_here.root / "made" / "1" / "model.onnx"
    INT8.make(order, target)
    assert target.read_bytes() == tiny_here.file.read_bytes()
    assert (target.parent / tensorrt.options["trt_int8_calibration_table_name"]).stat().st_size


def test_a_file_that_was_trained_for_it_is_taken_as_a_variant(tiny_here: Model) -> None:
    brought = tiny_here.root.parent / "trained.onnx"
    shutil.copy(make(tiny_here, "int8-static", **calibration(tiny_here)).model.file, brought)
    made = make(tiny_here, "qat", brought=brought)
    assert made.record.made.startswith("trained.onnx as brought")
    assert made.record.of == "tiny"


def test_a_brought_file_must_be_quantised_and_alike(tiny_here: Model) -> None:
    with pytest.raises(ModelError, match="has no QuantizeLinear node"):
        make(tiny_here, "qat", brought=tiny_here.file)
    with pytest.raises(UsageError, match="a file of yours"):
        make(tiny_here, "qat")
    brought = tiny_here.root.parent / "other.onnx"
    onnx.save(quantised_input("z"), brought)
    with pytest.raises(ModelError, match="inputs are x in the configuration and z in the graph"):
        make(tiny_here, "qat", brought=brought)
    assert names(tiny_here.root) == ["tiny"]


def quantised_input(name: str) -> onnx.ModelProto:
    """Its input, quantised and back, as its output."""
    graph = helper.make_graph(
        [
            helper.make_node("QuantizeLinear", [name, "scale"], ["q"]),
            helper.make_node("DequantizeLinear", ["q", "scale"], ["y"]),
        ],
        "quantised",
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["batch", 64])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", 64])],
        [numpy_helper.from_array(np.array(0.1, np.float32), "scale")],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def test_a_variant_of_a_variant_is_measured_against_the_first(tiny_here: Model) -> None:
    first = make(tiny_here, "int8-static", **calibration(tiny_here))
    second = make(first.model, "qat", brought=first.model.file)
    assert second.model.name == "tiny-int8-static-qat"
    assert (second.record.of, second.record.kind) == ("tiny", "int8-static+qat")
    assert second.record.largest_difference == first.record.largest_difference > 0


def test_what_lies_beside_the_configuration_comes_along(tiny_here: Model) -> None:
    (tiny_here.folder / "labels.txt").write_text("a\nb\n")
    (tiny_here.folder / "warmup").mkdir()
    (tiny_here.folder / "warmup" / "x").write_bytes(b"x")
    made = make(tiny_here, "int8-dynamic").model
    assert (made.folder / "labels.txt").read_text() == "a\nb\n"
    assert (made.folder / "warmup" / "x").read_bytes() == b"x"


def test_the_classifiers_static_variant_is_small_fast_and_near(classifier: Model) -> None:
    made = make(classifier, "int8-static")
    record = made.record
    assert record.size_bytes < 0.35 * record.parent_size_bytes
    assert record.cosine > 0.98
    assert record.task_lost == 0
    assert record.top1_agreement is not None
    assert record.top1_agreement >= 0.75
    assert record.made.endswith("calibrated on the 8 inputs that it was measured on")
    assert made.model.config.batched


def test_the_classifier_pruned_is_smaller_and_its_loss_is_told(classifier: Model) -> None:
    with pytest.raises(ModelError, match=r"its drop is \d+\.\d% \(top-1, 8 inputs\)"):
        make(classifier, "pruned", Limits(0.05), ratio=0.25)
    made = make(classifier, "pruned", Limits(0.05, keep_anyway=True), ratio=0.25)
    assert made.record.size_bytes < 0.7 * made.record.parent_size_bytes
    assert made.record.drop > 0.5
    assert any("more than 5.0%" in note for note in made.notes)


def test_the_classifier_simplified_answers_the_same(classifier: Model) -> None:
    made = make(classifier, "simplified", STRICT)
    assert made.record.largest_difference < 1e-4
    nodes = [len(onnx.load(model.file).graph.node) for model in (classifier, made.model)]
    assert nodes[1] < 0.5 * nodes[0]


def test_an_older_operator_set_is_quantised_too(tmp_path: Path) -> None:
    model = write_model(
        tmp_path,
        "old",
        [helper.make_node("Conv", ["x", "w"], ["y"])],
        [Port("x", "FP32", (3, 8, 8))],
        [Port("y", "FP32", (4, 8, 8))],
        max_batch_size=4,
    )
    graph = onnx.load(model.file)
    weights = np.random.default_rng(1).standard_normal((4, 3, 1, 1)).astype(np.float32)
    graph.graph.initializer.append(numpy_helper.from_array(weights, "w"))
    graph.opset_import[0].version, graph.ir_version = 9, 4
    onnx.save(graph, model.file)
    assert make(model, "int8-static", **calibration(model)).record.cosine > 0.99


def run_command(*arguments: str) -> tuple[int, str]:
    done = CliRunner().invoke(app, ["models", "variant", *arguments])
    if isinstance(done.exception, InfersweepError):
        return done.exception.exit_code, str(done.exception)
    return done.exit_code, done.output


def test_the_command_makes_one_from_calibration_files(tiny_here: Model) -> None:
    rows = np.random.default_rng(2).standard_normal((5, 64)).astype(np.float32)
    folder = tiny_here.root.parent / "inputs"
    folder.mkdir()
    np.savez(folder / "a.npz", x=rows[:2])
    np.savez(folder / "b.npz", x=rows[2:])
    arguments = ["tiny", "--kind", "int8-static", "--calibration", str(folder)]
    code, text = run_command(*arguments, "--max-drop", "1", "--repository", str(tiny_here.root))
    assert code == 0, text
    assert "calibrated on 5 inputs of inputs" in text
    assert "against tiny on 8 inputs (generated)" in text


@pytest.mark.parametrize(
    ("arguments", "code", "reason"),
    [
        (("--kind", "pruned", "--calibration", "x.npz"), 2, "does not read --calibration"),
        (("--kind", "fp16", "--ratio", "0.5"), 2, "does not read --ratio"),
        (("--kind", "pruned", "--ratio", "1.5"), 2, "between 0 and 1"),
        (("--kind", "int8-static", "--calibration", "x.npz"), 2, "no sample inputs at x.npz"),
        (("--kind", "torch"), 2, "no kind of variant 'torch'"),
    ],
)
def test_mistakes(tiny_here: Model, arguments: Sequence[str], code: int, reason: str) -> None:
    found = run_command("tiny", *arguments, "--repository", str(tiny_here.root))
    assert found[0] == code
    assert reason in found[1]


def test_a_script_that_cannot_compile_is_told_before_anything_starts(
    classifier: Model, tmp_path: Path
) -> None:
    placement = Placement(cpus=(0,), usable_cpus=1)
    with pytest.raises(ModelError, match=r"torch\.jit\.script does not compile: .*expand_ratio"):
        plan_launch(
            "fastapi:torchscript-script",
            classifier,
            placement,
            repository=tmp_path / "r",
            work_folder=tmp_path,
        )


def test_what_cannot_be_launched_is_told_before_anything_starts(
    tiny: Model, tmp_path: Path
) -> None:
    told: list[dict[str, str]] = []
    listener = Listener({"starting": lambda: told.append(dict(listener.excluded))})
    asked = short(backends=("null", "fastapi:torchscript-trace"))
    sweep(tiny, tmp_path / "out", listener, asked)
    assert "ONNX only" in told[0]["fastapi:torchscript-trace"]


def test_jax_is_refused_with_the_reason(tiny: Model, tmp_path: Path) -> None:
    placement = Placement(cpus=(0,), usable_cpus=1)
    with pytest.raises(UsageError, match="no model of the zoo has a JAX function"):
        plan_launch("fastapi:jax", tiny, placement, repository=tmp_path / "r", work_folder=tmp_path)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("name", TORCH_ENGINES)
def test_each_engine_of_pytorch_answers_as_the_module_does(name: str) -> None:
    import torch
    from torch import nn

    module = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3)).eval()
    x = torch.randn(3, 4)
    with torch.inference_mode():
        network = TORCH_ENGINES[name](module, (x[:1],))
        for rows in (1, 2, 3):
            torch.testing.assert_close(network(x[:rows]), module(x[:rows]))


def test_a_traced_engine_is_served_right(classifier: Model, tmp_path: Path) -> None:
    placement = Placement(cpus=(0,), usable_cpus=1)
    with running(
        "fastapi:torchscript-trace",
        classifier,
        placement,
        repository=tmp_path / "r",
        logs=tmp_path,
    ) as server:
        assert "TorchScript, traced" in server.launch.facts["engine"]
        assert check_parity(server.url, server.model, reference_for(classifier)).passed
