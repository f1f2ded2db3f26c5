"""Each model of the zoo: built from its pinned weights, and right on real photographs."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import onnxruntime
import pytest

from serving.models.repository import DEFAULT_ROOT, Model
from serving.models.samples import samples_for, stack_rows
from serving.models.weights import fetch
from serving.models.zoo import ENTRIES
from serving.models.zoo.build import build, ensure_built, load_torch_module
from serving.models.zoo.entry import ZooEntry
from serving.models.zoo.face_detector import NAMES, faces
from serving.session import open_session


@pytest.fixture(scope="module", params=ENTRIES.values(), ids=lambda entry: entry.name)
def entry(request: pytest.FixtureRequest) -> ZooEntry:
    found: ZooEntry = request.param
    return found


@pytest.fixture(scope="module")
def built(entry: ZooEntry, tmp_path_factory: pytest.TempPathFactory) -> Model:
    model = Model(tmp_path_factory.mktemp("zoo"), entry.name)
    model.folder.mkdir()
    shutil.copy(DEFAULT_ROOT / entry.name / "config.pbtxt", model.folder)
    build(entry, model, print)
    return model


def test_every_sample_gets_a_right_answer(entry: ZooEntry, built: Model) -> None:
    session = open_session(built)
    faults = {s.name: entry.fault(s.name, session.run(s.inputs)) for s in samples_for(built)}
    assert len(faults) >= 6
    assert not {name: fault for name, fault in faults.items() if fault}


def test_a_wrong_answer_would_be_found(entry: ZooEntry, built: Model) -> None:
    session = open_session(built)
    answers = {s.name: session.run(s.inputs) for s in samples_for(built)}
    assert entry.fault("coffee", answers["astronaut"])


def test_rows_together_answer_as_rows_alone(built: Model) -> None:
    session, samples = open_session(built), samples_for(built)[: built.config.max_batch_size]
    together = session.run(stack_rows(samples))
    for row, sample in enumerate(samples):
        for name, array in session.run(sample.inputs).items():
            np.testing.assert_allclose(together[name][row], array[0], rtol=1e-3, atol=1e-4)


def test_a_built_model_is_left_alone(built: Model) -> None:
    before = built.file.stat().st_mtime_ns
    ensure_built(built, pytest.fail)
    assert built.file.stat().st_mtime_ns == before


def test_pytorch_answers_the_same(entry: ZooEntry, built: Model) -> None:
    if entry.torch_module is None:
        assert entry.name == "face_detector"
        return
    import torch

    module, session = load_torch_module(entry.name), open_session(built)
    for sample in samples_for(built)[:3]:
        with torch.inference_mode():
            eager = module(torch.from_numpy(sample.inputs["image"])).numpy()
        np.testing.assert_allclose(
            eager, session.run(sample.inputs)["logits"], atol=1e-4, rtol=1e-3
        )


def test_the_astronaut_has_one_face_where_it_is(built: Model) -> None:
    if built.name != "face_detector":
        return
    sample = next(s for s in samples_for(built) if s.name == "astronaut")
    ((left, top, right, bottom),) = faces(open_session(built).run(sample.inputs))
    # The picture of 512 x 512 lies in the middle 480 columns of 640.
    assert 200 < left < right < 380
    assert 30 < top < bottom < 200


def _bare(path: Path) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(str(path), options, ["CPUExecutionProvider"])


def test_the_normalised_detector_answers_as_the_shipped_one(built: Model) -> None:
    if built.name != "face_detector":
        return
    shipped = _bare(fetch(ENTRIES["face_detector"].weights, print))
    image = np.random.default_rng(1).uniform(0, 255, (10, 3, 32, 32)).astype(np.float32)
    right = dict(zip(NAMES.values(), [image, *shipped.run(None, {"input.1": image})], strict=True))
    ours = _bare(built.file)
    names = [output.name for output in ours.get_outputs()]
    for name, array in zip(names, ours.run(names, {"image": image}), strict=True):
        np.testing.assert_allclose(array, right[name], atol=4e-6)


def test_weights_that_are_cached_need_no_network(entry: ZooEntry, built: Model) -> None:
    assert fetch(entry.weights, pytest.fail).is_file()
