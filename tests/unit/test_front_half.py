"""The front half: the same picture gives the same tensor, and is never stretched."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from loadtest.cli.models import pipeline as command
from loadtest.counters import Counters, UntoldError, read_statistics
from loadtest.prepare import payloads_from
from serving.deriving.derive import Limits, derive
from serving.deriving.pipeline import known_front, make_pipeline
from serving.errors import ModelError, UsageError
from serving.fronthalf import STEP_FILES, FrontHalf, Payload, PictureError, picture
from serving.fronthalf.frames import frame
from serving.fronthalf.sizes import frame_bytes
from serving.linting import lint
from serving.models.config import load_message
from serving.models.pipeline import write_pipeline
from serving.models.repository import DEFAULT_ROOT, Model, find_model, place
from serving.models.samples import samples_for, source_of_samples
from serving.models.variants.kind import Order
from serving.models.variants.registry import resolve_kind
from serving.models.zoo import ENTRIES
from serving.models.zoo.build import ensure_built
from serving.models.zoo.feature_extractor import prepare
from serving.parity import reference_for
from serving.pipelines import open_runner
from tests import sample_pictures
from tests.sample_pictures import BROKEN, FRONT, HEIGHT, WIDTH, jpeg, noise, rows

COMMITTED: dict[str, Payload] = {
    "image_classifier_jpeg": "jpeg",
    "image_classifier_uint8": "uint8",
    "face_detector_jpeg": "jpeg",
}
PIXELS = replace(FRONT, payload="uint8")


@pytest.fixture
def pipeline(tmp_path: Path) -> Model:
    return sample_pictures.write_pipeline(tmp_path, "jpeg")


def test_each_value_is_normalised_with_the_mean_of_its_channel() -> None:
    pixels = noise()
    (tensor,) = PIXELS.run(pixels[None])
    assert (tensor.dtype, tensor.shape) == (np.float32, (3, HEIGHT, WIDTH))
    for channel, mean in enumerate(FRONT.mean):
        assert tensor[channel, 7, 9] == (float(pixels[7, 9, channel]) - mean) / 2
    (turned,) = replace(PIXELS, channels="BGR", mean=(0.0,), std=(1.0,)).run(pixels[None])
    assert np.array_equal(turned, pixels[:, :, ::-1].transpose(2, 0, 1))


def test_a_jpeg_of_the_models_own_size_is_taken_pixel_for_pixel() -> None:
    file = jpeg(noise())
    pixels = np.asarray(picture.decode(file))
    assert np.array_equal(FRONT.run(rows(file)), PIXELS.run(pixels[None]))


@pytest.mark.parametrize(
    ("height", "width", "inside"),
    [
        (96, 256, (slice(12, 36), slice(0, 64))),
        (6, 16, (slice(12, 36), slice(0, 64))),
        (192, 64, (slice(0, 48), slice(24, 40))),
        (480, 640, (slice(0, 48), slice(0, 64))),
    ],
)
def test_a_picture_of_another_size_is_padded_and_never_stretched(
    height: int, width: int, inside: tuple[slice, slice]
) -> None:
    white = Image.fromarray(np.full((height, width, 3), 255, np.uint8))
    boxed = FRONT.letterbox(white)
    assert (boxed[inside] == 255).all()
    margins = np.ones((HEIGHT, WIDTH), bool)
    margins[inside] = False
    assert (boxed[margins] == FRONT.fill).all()


@pytest.mark.parametrize("mode", ["L", "CMYK"])
def test_grey_and_four_colour_pictures_are_taken_too(mode: str) -> None:
    grey = np.repeat(noise()[:, :, :1], 3, axis=2)
    taken = np.asarray(picture.decode(jpeg(grey, mode=mode)), np.int16)
    assert np.abs(taken - grey).mean() < 40


@pytest.mark.parametrize("case", BROKEN)
def test_a_broken_picture_is_refused_in_one_line(case: str) -> None:
    file, told = BROKEN[case]
    with pytest.raises(PictureError, match=told) as caught:
        FRONT.run(rows(jpeg(noise()), file))
    assert "\n" not in str(caught.value)


def test_a_picture_that_claims_too_many_pixels_is_not_decoded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(picture, "MOST_PIXELS", HEIGHT * WIDTH - 1)
    with pytest.raises(PictureError, match="64 x 48 pixels are more than 3071"):
        FRONT.run(rows(jpeg(noise())))


@pytest.mark.parametrize("name", ["image_classifier", "face_detector", "feature_extractor"])
def test_the_zoos_models_get_what_their_own_samples_are_made_of(name: str) -> None:
    front = ENTRIES[name].front
    assert front is not None
    if front.channels == "GREY":
        image = frame("cat")
        pixels, wanted = np.asarray(image), prepare(image)
    else:
        wanted = ENTRIES[name].samples()["cat"]["image"]
        stored = wanted[0].transpose(1, 2, 0) * front.std[0] + front.mean[0]
        pixels = stored.round().astype(np.uint8)
    assert np.array_equal(replace(front, payload="uint8").run(pixels[None]), wanted)


@pytest.mark.parametrize(
    "front",
    [FRONT, PIXELS, FrontHalf("jpeg", 8, 9, "GREY", std=(1 / 3,)), replace(FRONT, fill=0)],
)
def test_parameters_are_read_as_they_were_written(front: FrontHalf) -> None:
    dims = (front.depth, front.height, front.width)
    assert FrontHalf.from_parameters(front.parameters(), dims) == front


@pytest.mark.parametrize(
    ("changes", "dims", "told"),
    [
        ({"front_payload": "png"}, (3, 8, 8), "payload 'png'"),
        ({"front_channels": "RGBA"}, (3, 8, 8), "channels 'RGBA'"),
        ({"front_mean": "1,2"}, (3, 8, 8), "mean has 2 values"),
        ({"front_std": "0"}, (3, 8, 8), "std must not be 0"),
        ({"front_fill": "256"}, (3, 8, 8), "fill must lie"),
        ({"front_resize": "stretch"}, (3, 8, 8), "front_resize"),
        ({}, (1, 8, 8), "channels RGB do not fit dims"),
        ({}, (3, 8), "are not"),
    ],
)
def test_parameters_that_are_no_front_half_are_named(
    changes: dict[str, str], dims: tuple[int, ...], told: str
) -> None:
    with pytest.raises(ValueError, match=told):
        FrontHalf.from_parameters({**FRONT.parameters(), **changes}, dims)


def test_a_vga_frame_weighs_what_the_plan_says() -> None:
    found = frame_bytes(640, 480)
    assert 30_000 < found["jpeg"] < 80_000
    assert (found["uint8"], found["float32"]) == (921_600, 3_686_400)
    assert frame_bytes(1280, 720)["jpeg"] > found["jpeg"]
    with pytest.raises(UsageError, match="0 x 480"):
        frame_bytes(0, 480)


@pytest.mark.parametrize("name", COMMITTED)
def test_the_committed_pipelines_are_those_that_the_command_writes(name: str) -> None:
    model = find_model(name.rpartition("_")[0])
    front = known_front(model, COMMITTED[name])
    assert front is not None
    for message in write_pipeline(name, model.config, front):
        assert load_message(DEFAULT_ROOT / message.name / "config.pbtxt") == message
        found = lint(DEFAULT_ROOT)
        assert [one for one in found if one.file.parent.name == message.name] == []


def test_a_pipeline_states_what_the_model_behind_it_does(pipeline: Model) -> None:
    assert (pipeline.name, [step.name for step in pipeline.steps]) == (
        "colours_jpeg",
        ["colours_front_jpeg", "colours"],
    )
    assert pipeline.config.dynamic_batching == pipeline.computed.config.dynamic_batching
    assert pipeline.sha256() == pipeline.computed.sha256()
    shown = samples_for(pipeline)
    assert (len(shown), source_of_samples(pipeline)) == (8, "zoo")
    assert shown[0].inputs["picture"].shape == (1, 1)


def test_all_three_models_are_placed_with_the_same_instances_and_rows(
    pipeline: Model, tmp_path: Path
) -> None:
    def fewer(message: object) -> None:
        message.max_batch_size = 2  # type: ignore[attr-defined]

    placed = place(pipeline, tmp_path / "r", instances=3, intra_op_threads=2, edit=fewer)
    assert placed.front is not None
    assert placed.config.threads == 6
    assert placed.front.config.instances == 3
    assert {one.config.max_batch_size for one in (placed, *placed.steps)} == {2}
    assert placed.sha256() == pipeline.sha256()
    assert (placed.front.file.name, placed.front.is_built) == ("picture.py", True)


def test_the_reference_is_the_front_half_and_then_the_model(pipeline: Model) -> None:
    reference = reference_for(pipeline)
    tensor = FRONT.run(reference.samples[2].inputs["picture"])
    means = tensor.mean(axis=(2, 3), dtype=np.float64)
    assert reference.answers[2]["colours"] == pytest.approx(means, rel=1e-5, abs=1e-4)
    assert pipeline.front is not None
    front = open_runner(pipeline.front).run(reference.samples[2].inputs)
    assert np.array_equal(front["image"], tensor)


def test_jpeg_cannot_travel_as_json(pipeline: Model) -> None:
    with pytest.raises(UsageError, match="cannot be JSON"):
        payloads_from(pipeline, reference_for(pipeline), encoding="json")


def test_tritons_copy_follows_the_code_and_the_link_the_newest_file(pipeline: Model) -> None:
    assert pipeline.front is not None
    copies = [pipeline.front.folder / "1" / name for name in STEP_FILES]
    copies[0].write_text("of another version")
    second = pipeline.computed.folder / "2" / "model.onnx"
    second.parent.mkdir()
    second.write_bytes(pipeline.file.read_bytes())
    ensure_built(pipeline, pytest.fail)
    assert [copy.read_bytes() for copy in copies] == [
        source.read_bytes() for source in STEP_FILES.values()
    ]
    assert pipeline.file.resolve() == second.resolve()


def _edit(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))


@pytest.mark.parametrize(
    ("model", "old", "new", "told"),
    [
        (
            "colours_front_jpeg",
            "max_batch_size: 8",
            "max_batch_size: 4",
            "more than that of a step",
        ),
        ("colours_front_jpeg", 'backend: "python"', 'backend: "other"', "is an ensemble, and no"),
        ("colours_front_jpeg", "TYPE_STRING", "TYPE_UINT8", "its input is not that of"),
        ("colours", "dims: [3, 48, 64]", "dims: [3, 48, 65]", "is not what colours takes"),
        ("colours_jpeg", "dims: 3", "dims: 4", "its outputs are not those of colours"),
        ("colours_jpeg", '"colours_front_jpeg"', '"colours"', "is an ensemble, and no"),
        ("colours_jpeg", 'value: "image"', 'value: "frame"', "is an ensemble, and no front half"),
        (
            "colours_jpeg",
            "model_version: -1",
            "model_version: 1",
            "is an ensemble, and no front half",
        ),
        ("colours_front_jpeg", '"127"', '"grey"', "states no front half"),
    ],
)
def test_ensembles_of_another_form_are_refused(
    pipeline: Model, model: str, old: str, new: str, told: str
) -> None:
    _edit(pipeline.root / model / "config.pbtxt", old, new)
    with pytest.raises(ModelError, match=told):
        ensure_built(Model(pipeline.root, pipeline.name), pytest.fail)


def test_a_front_half_that_cannot_be_is_found_before_a_server_starts(pipeline: Model) -> None:
    assert pipeline.front is not None
    ours = [one for one in lint(pipeline.root) if one.file.parent.name != "colours"]
    assert ours == []
    _edit(pipeline.front.folder / "config.pbtxt", '"127"', '"grey"')
    errors = [one for one in lint(pipeline.root) if one.severity == "error"]
    assert ["states no front half" in one.what for one in errors] == [True]


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda front: replace(front, height=40), "a front half gives FP32"),
        (lambda front: front, "there is a model 'colours_front_jpeg'"),
    ],
)
def test_what_does_not_fit_is_not_made(
    pipeline: Model, change: Callable[[FrontHalf], FrontHalf], told: str
) -> None:
    with pytest.raises(ModelError, match=told):
        make_pipeline(pipeline.computed, change(FRONT), pytest.fail)
    assert pipeline.is_built


def test_the_command_asks_for_what_it_cannot_know(tmp_path: Path) -> None:
    model = sample_pictures.write_colours(tmp_path)
    with pytest.raises(UsageError, match="normalised is not known"):
        command.run(model.name, repository=tmp_path)
    with pytest.raises(UsageError, match="std must not be 0"):
        command.run(model.name, mean="0", std="0", repository=tmp_path)
    assert command.run(model.name, payload="uint8", mean="1,2,3", std="4", repository=tmp_path) == 0
    made = Model(tmp_path, "colours_front_uint8").config
    assert made.front == replace(PIXELS, mean=(1.0, 2.0, 3.0), std=(4.0,))
    assert made.inputs[0].dims == (HEIGHT, WIDTH, 3)


def _told(total_ns: int, queue_ns: int, compute_ns: int) -> Counters:
    """What a model says after two requests, in the form of Triton's reply."""
    ns = {"success": total_ns, "queue": queue_ns, "compute_infer": compute_ns}
    ns |= {"compute_input": 5, "compute_output": 7}
    phases = {name: {"count": 2, "ns": value} for name, value in ns.items()}
    told = {"inference_count": 2, "execution_count": 1, "inference_stats": phases}
    return read_statistics(json.dumps({"model_stats": [told]}).encode())


def test_the_front_half_is_a_phase_beside_those_of_the_model() -> None:
    nothing = Counters("", dict.fromkeys(_told(0, 0, 0).phases, (0, 0)), 0, 0)
    before = nothing.with_steps(nothing, nothing)
    # Triton adds the steps' compute to the ensemble's own counters, but not their queues.
    later = _told(1000, 1, 700).with_steps(_told(300, 20, 200), _told(600, 30, 500))
    found = before.until(later).phases
    assert {name: phase.ns for name, phase in found.items()} == {
        "total": 1000,
        "queue": 1 + 20 + 30,
        "front_half": 5 + 200,
        "compute_input": 5,
        "compute": 500,
        "compute_output": 7,
    }
    assert {phase.count for phase in found.values()} == {2}
    with pytest.raises(UntoldError):
        later.until(before)


def test_a_damaged_picture_is_read_or_refused_and_nothing_else() -> None:
    rng, whole = np.random.default_rng(3), jpeg(noise())
    outcomes = set()
    for _ in range(200):
        damaged = bytearray(whole)
        for at in rng.integers(0, 700, 4):
            damaged[at] = rng.integers(0, 256)
        try:
            outcomes.add(FRONT.run(rows(bytes(damaged))).shape)
        except PictureError:
            outcomes.add("refused")
    assert outcomes == {(1, 3, HEIGHT, WIDTH), "refused"}


def test_a_pipeline_has_no_variants_of_its_own(pipeline: Model) -> None:
    with pytest.raises(ModelError, match="Make a variant of 'colours', and a pipeline of that"):
        derive(Order(pipeline), resolve_kind("simplified"), Limits(0.05), pytest.fail)
    assert not Model(pipeline.root, "colours_jpeg-simplified").folder.exists()
