"""What lies around an added model: names, versions, real inputs, memory, the command line."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import sys
from pathlib import Path

import ml_dtypes
import numpy as np
import onnx
import pytest

from loadtest.cli import main
from serving.errors import InfersweepError, MachineError, ModelError, UsageError
from serving.importing import GivenLengths, OnnxFile, Request, Wanted, add
from serving.importing.real_inputs import read_samples
from serving.linting import lint
from serving.models.generated import ValueRange
from serving.models.inspection import inspect
from serving.models.repository import Model, find_model
from serving.models.samples import samples_for
from serving.session import open_session
from tests.odd_accepted import REPEATABLE
from tests.odd_models import RELU, external, identities, text

ROOT = Path(__file__).parents[2]


@pytest.fixture
def relu(tmp_path: Path) -> Path:
    """[batch, 4] given back without what is below zero."""
    folder = tmp_path / "given"
    folder.mkdir()
    return text(RELU)(folder)


@pytest.mark.parametrize(
    ("file", "name"),
    [
        ("net.onnx", "net"),
        ("réseau de nuit.onnx", "reseau_de_nuit"),
        ("a.b-c_d.onnx", "a.b-c_d"),
        ("a:b.onnx", "a_b"),
        ("-.hidden.onnx", "hidden"),
    ],
)
def test_a_name_is_made_from_the_files(relu: Path, tmp_path: Path, file: str, name: str) -> None:
    relu = relu.rename(relu.with_name(file))
    assert add(Request(OnnxFile(relu)), tmp_path / "all").model.name == name


@pytest.mark.parametrize("name", ["中文", "a/b", "..", ".hidden", "a b", "x\n"])
def test_a_name_that_no_folder_can_have_is_asked_for(relu: Path, tmp_path: Path, name: str) -> None:
    with pytest.raises(UsageError, match="Give --name"):
        add(Request(OnnxFile(relu), name), tmp_path / "all")


def test_a_file_of_no_latin_letter_needs_a_name(relu: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="Give --name"):
        add(Request(OnnxFile(relu.rename(relu.with_name("中文.onnx")))), tmp_path / "all")


def test_a_name_that_is_taken_is_refused_and_untouched(relu: Path, tmp_path: Path) -> None:
    root = tmp_path / "all"
    folder = add(Request(OnnxFile(relu), "mine"), root).model.folder
    (folder / "config.pbtxt").write_text((folder / "config.pbtxt").read_text() + "# tuned\n")
    with pytest.raises(ModelError, match=r"mine is there already.*--as-next-version"):
        add(Request(OnnxFile(relu), "mine"), root)
    with pytest.raises(ModelError, match="'image_classifier' is a model of the zoo"):
        add(Request(OnnxFile(relu), "image_classifier"), root)
    assert (folder / "config.pbtxt").read_text().endswith("# tuned\n")


def test_a_next_version_keeps_the_configuration(relu: Path, tmp_path: Path) -> None:
    root = tmp_path / "all"
    first = add(Request(OnnxFile(relu), "mine"), root)
    config = first.model.folder / "config.pbtxt"
    config.write_text(config.read_text().replace("max_batch_size: 8", "max_batch_size: 5"))
    twice = text(RELU.replace("Relu(x)", "Add(x, x)"))(relu.parent)
    second = add(Request(OnnxFile(twice), "mine", next_version=True), root)
    assert (first.version, second.version) == (1, 2)
    assert any("config.pbtxt and sample inputs are kept" in line for line in second.remarks)
    model = Model(root, "mine")
    assert model.versions == (1, 2)
    assert model.config.max_batch_size == 5
    assert open_session(model).run({"x": np.ones((1, 4), np.float32)})["y"].tolist() == [[2] * 4]


@pytest.mark.parametrize(
    ("graph", "told"),
    [
        (RELU.replace("[batch,4]", "[batch,5]"), r"\[-1, 4\] in the configuration"),
        (RELU.replace(" x)", " z)").replace("(x)", "(z)"), "inputs are x in the configuration"),
        (
            (
                "g (float[batch,4] x) => (float[batch,4] y) "
                "{ m = ReduceMean <axes = [0], keepdims = 1> (x) y = Sub(x, m) }"
            ),
            "cannot be batched, and .* says 8: output 'y' of a row changes",
        ),
    ],
)
def test_a_next_version_that_does_not_fit_is_refused(
    relu: Path, tmp_path: Path, graph: str, told: str
) -> None:
    root = tmp_path / "all"
    add(Request(OnnxFile(relu), "mine"), root)
    other = text(graph)(relu.parent)
    with pytest.raises(ModelError, match=told):
        add(Request(OnnxFile(other), "mine", next_version=True), root)
    assert Model(root, "mine").versions == (1,)
    with pytest.raises(ModelError, match=r"no model 'yours' .* to have a next version"):
        add(Request(OnnxFile(relu), "yours", next_version=True), root)


def test_real_inputs_are_kept_row_by_row(relu: Path, tmp_path: Path) -> None:
    rows = np.arange(12, dtype=np.float32).reshape(3, 4)
    inputs = tmp_path / "inputs"
    inputs.mkdir()
    np.savez(inputs / "many.npz", x=rows)
    np.save(inputs / "one.npy", rows[:1])
    added = add(Request(OnnxFile(relu), samples=inputs), tmp_path / "all")
    kept = samples_for(added.model)
    assert [sample.name for sample in kept] == ["many-0", "many-1", "many-2", "one"]
    np.testing.assert_array_equal(np.concatenate([s.inputs["x"] for s in kept[:3]]), rows)
    assert "4 stored" in "\n".join(added.remarks)
    assert not added.model.config.generated


def test_two_rows_of_one_name_are_told(relu: Path, tmp_path: Path) -> None:
    inputs = tmp_path / "inputs"
    inputs.mkdir()
    np.savez(inputs / "a.npz", x=np.ones((2, 4), np.float32))
    np.savez(inputs / "a-0.npz", x=np.ones((1, 4), np.float32))
    with pytest.raises(UsageError, match="one name"):
        add(Request(OnnxFile(relu), samples=inputs), tmp_path / "all")


def test_lengths_come_from_real_inputs(tmp_path: Path) -> None:
    file = text("g (int64[N,seq] ids) => (int64[N,seq] y) { y = Identity(ids) }")(tmp_path)
    np.savez(tmp_path / "short.npz", ids=np.ones((2, 3), np.int64))
    model = add(Request(OnnxFile(file), "ids", samples=tmp_path / "short.npz"), tmp_path / "all")
    assert [sample.inputs["ids"].shape for sample in samples_for(model.model)] == [(1, 3)] * 2


def test_text_and_bfloat16_are_kept(tmp_path: Path) -> None:
    words = np.array([["é", "n"], ["", "long"]])
    (tmp_path / "words").mkdir()
    file = text(identities(["string"]))(tmp_path / "words")
    np.savez(tmp_path / "words.npz", x_string=words)
    model = add(Request(OnnxFile(file), "words", samples=tmp_path / "words.npz"), tmp_path / "all")
    kept = [sample.inputs["x_string"].tolist() for sample in samples_for(model.model)]
    assert kept == [[[b"\xc3\xa9", b"n"]], [[b"", b"long"]]]
    (tmp_path / "halves").mkdir()
    file = text(identities(["bfloat16"]))(tmp_path / "halves")
    np.savez(tmp_path / "halves.npz", x_bfloat16=np.array([[1.5, -2.0]], np.float32))
    model = add(
        Request(OnnxFile(file), "halves", samples=tmp_path / "halves.npz"), tmp_path / "all"
    )
    (sample,) = samples_for(model.model)
    assert sample.inputs["x_bfloat16"].dtype == ml_dtypes.bfloat16
    assert sample.inputs["x_bfloat16"].tolist() == [[1.5, -2.0]]


@pytest.mark.parametrize(
    ("arrays", "error", "told"),
    [
        ({"z": np.ones((1, 4), np.float32)}, ModelError, "holds z. It must hold every input"),
        ({"x": np.ones((1, 4))}, ModelError, "of type float64 and the input of FP32"),
        ({"x": np.ones((1, 5), np.float32)}, UsageError, "sample 'given': .* says 5 where axis"),
        ({"x": np.ones(4, np.float32)}, UsageError, "has 1 lengths and the graph"),
        ({"x": np.array([[{}]], dtype=object)}, ModelError, "cannot be read: .*pickle"),
    ],
)
def test_inputs_that_do_not_fit_are_told(
    relu: Path,
    tmp_path: Path,
    arrays: dict[str, np.ndarray],
    error: type[InfersweepError],
    told: str,
) -> None:
    np.savez(tmp_path / "given.npz", **arrays)
    with pytest.raises(error, match=told):
        read_samples(tmp_path / "given.npz", inspect(relu).inputs)


def test_where_there_are_no_inputs_it_is_told(relu: Path, tmp_path: Path) -> None:
    for place in (tmp_path / "nowhere", relu.parent):
        with pytest.raises(UsageError, match="no sample inputs at"):
            read_samples(place, inspect(relu).inputs)


def test_what_is_added_passes_the_linter(tmp_path: Path) -> None:
    for case in REPEATABLE:
        (tmp_path / case.name).mkdir()
        add(case.request(tmp_path / case.name), tmp_path / "all")
    assert lint(tmp_path / "all") == []


def test_a_place_that_cannot_be_written_is_told(relu: Path, tmp_path: Path) -> None:
    with pytest.raises(MachineError, match=r"model.onnx cannot be written: .*--repository"):
        add(Request(OnnxFile(relu)), relu)


def test_a_full_disk_leaves_nothing(
    relu: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fill(source: Path, target: Path) -> None:
        target.write_bytes(source.read_bytes()[:10])
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(shutil, "copyfile", fill)
    with pytest.raises(MachineError, match="No space left"):
        add(Request(OnnxFile(relu)), tmp_path / "all")
    assert list((tmp_path / "all").iterdir()) == []


def test_large_weights_are_never_held_twice(tmp_path: Path) -> None:
    """In a process of its own: what it needs above a tiny model is about the weights' size."""
    (tmp_path / "small").mkdir()
    small = external("w.bin")(tmp_path / "small")
    side = 8_000
    large = tmp_path / "large"
    large.mkdir()
    model = onnx.load(external("w.bin")(large), load_external_data=False)
    (weight,) = model.graph.initializer
    weight.dims[:] = [side, side]
    weight.external_data[2].value = str(4 * side * side)
    for value in (*model.graph.input, *model.graph.output):
        value.type.tensor_type.shape.dim[1].dim_value = side
    (large / "net.onnx").write_bytes(model.SerializeToString())
    os.truncate(large / "w.bin", 4 * side * side)
    everything = str(tmp_path / "all")
    code = f"""
from pathlib import Path
from serving.importing import OnnxFile, Request, add
def peak():
    text = Path("/proc/self/status").read_text()
    return int(text.split("VmHWM:")[1].split()[0]) * 1024
add(Request(OnnxFile(Path({str(small)!r})), "small"), Path({everything!r}))
before = peak()
added = add(Request(OnnxFile(Path({str(large / "net.onnx")!r})), "large"), Path({everything!r}))
print(added.size_bytes, peak() - before)
"""
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    size, grown = map(int, done.stdout.split())
    assert size > 4 * side * side
    assert grown < 1.2 * size


def run(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    monkeypatch.setattr(sys, "argv", ["infersweep", "models", *arguments])
    with pytest.raises(SystemExit) as left:
        main()
    return int(left.value.code or 0)


def test_add_and_show_on_the_command_line(
    relu: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    root = str(tmp_path / "all")
    options = ["--name", "mine", "--max-batch-size", "4", "--range", "x=-5..5", "--licence", "MIT"]
    assert run(monkeypatch, "add", str(relu), *options, "--repository", root) == 0
    told = capsys.readouterr().out
    assert "input x: FP32 [-1, 4]" in told
    assert "batches of up to 4" in told
    assert f"infersweep check --model mine --repository {root}" in told
    low, high = (
        extreme(sample.inputs["x"].min() for sample in samples_for(find_model("mine", Path(root))))
        for extreme in (min, max)
    )
    assert -5 <= low < high <= 5
    assert run(monkeypatch, "show", "mine", "--repository", root) == 0
    told = capsys.readouterr().out
    assert "requests are joined up to 4 rows" in told
    assert "not counted: Relu 1" in told
    assert "licence: MIT" in told


@pytest.mark.parametrize(
    ("arguments", "status", "told"),
    [
        ([], 2, "there must be a file or --torch"),
        (["net.onnx", "--torch", "nets:build"], 2, "there must be a file or --torch"),
        (["net.onnx", "--input-shape", "x"], 2, "--input-shape 'x'. Write NAME=VALUE"),
        (["net.onnx", "--input-shape", "x=1,two"], 2, "'two' is no length"),
        (["net.onnx", "--axis", "seq=0"], 2, "'0' is no length"),
        (["net.onnx", "--axis", "a=1", "--axis", "a=2"], 2, "each name once"),
        (["net.onnx", "--range", "x=9..1"], 2, "Write a range such as 0..99"),
        (["no-such-net.onnx"], 5, "does not exist"),
        (["no-such-net.pt", "--input-shape", "x=1,4"], 5, "no-such-net.pt"),
    ],
)
def test_mistakes_on_the_command_line(
    arguments: list[str],
    status: int,
    told: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run(monkeypatch, "add", *arguments, "--repository", str(tmp_path / "all")) == status
    assert told in capsys.readouterr().err


def test_a_batched_sample_has_one_row_whatever_shape_was_given(relu: Path, tmp_path: Path) -> None:
    wanted = Wanted(given=GivenLengths(shapes={"x": (7, 4)}), ranges={"x": ValueRange(0, 1234567)})
    added = add(Request(OnnxFile(relu), "mine", wanted), tmp_path / "all")
    assert any("x 1x4 of 0..1234567" in remark for remark in added.remarks)
    assert {sample.inputs["x"].shape for sample in samples_for(added.model)} == {(1, 4)}
    assert added.model.config.generated["x"].values == ValueRange(0, 1234567)


def test_a_length_may_be_given_for_any_name(tmp_path: Path) -> None:
    """An axis without a name is called after its input; names may hold what shells dislike."""
    (tmp_path / "given").mkdir()
    file = text('g (float[?,?,"h w"] "x=1") => (float[?,?,"h w"] y) { y = Relu("x=1") }')(
        tmp_path / "given"
    )
    wanted = Wanted(given=GivenLengths({"x=1:1": 3, "h w": 2}))
    model = add(Request(OnnxFile(file), "odd", wanted), tmp_path / "all").model
    assert samples_for(model)[0].inputs["x=1"].shape == (1, 3, 2)
