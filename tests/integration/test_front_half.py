"""Pipelines on real servers: the same answers, faults told to the client, a phase of its own."""

from __future__ import annotations

import time
from importlib.metadata import version
from pathlib import Path

import pytest
import requests

from loadtest.timings import Meter, source_of
from serving.deployment import Placement, Server, running
from serving.models.repository import find_model
from serving.models.samples import samples_for
from serving.models.zoo import ENTRIES
from serving.models.zoo.build import ensure_built
from serving.parity import check_parity, reference_for
from serving.pipelines import open_runner
from serving.protocol import HEADER_LENGTH, Array, Tensor, encode_request
from tests import sample_pictures
from tests.sample_pictures import BROKEN, HEIGHT, WIDTH, jpeg, noise, rows

BACKENDS = ("triton", "onnxruntime", "fastapi")
COUNT = 6


def post(server: Server, pictures: Array) -> requests.Response:
    body, length = encode_request([Tensor.of("picture", pictures)], binary=True)
    url = f"{server.url}/v2/models/{server.model.name}/infer"
    return requests.post(url, body, headers={HEADER_LENGTH: str(length)}, timeout=30)


@pytest.mark.parametrize("label", BACKENDS)
def test_jpeg_is_answered_alike_and_its_front_half_is_timed(label: str, tmp_path: Path) -> None:
    pipeline = sample_pictures.write_pipeline(tmp_path / "models", "jpeg")
    reference = reference_for(pipeline)
    place = Placement(cpus=(0,), usable_cpus=2)
    with running(label, pipeline, place, repository=tmp_path / "r", logs=tmp_path) as server:
        assert server.launch.facts["front half"] == f"Pillow {version('pillow')}"
        for url in filter(None, (server.url, server.launch.grpc_url)):
            found = check_parity(url, server.model, reference)
            assert found.passed, f"{url}: {found.detail}"
            assert found.rows == 2 * len(reference.samples)
        for file, told in BROKEN.values():
            # The other row is not at fault, but a request is answered as a whole.
            refused = post(server, rows(jpeg(noise()), file))
            assert refused.status_code == 400
            assert told in refused.json()["error"]
            assert "\n" not in refused.json()["error"]
        assert_timed(server)


def assert_timed(server: Server) -> None:
    """What the server tells of some requests of two rows, sent one after the other."""
    meter = Meter(source_of(server.launch, *server.model.names), {}, None)
    meter.begin(time.sleep)
    began_ns = time.monotonic_ns()
    for seed in range(COUNT):
        assert post(server, rows(jpeg(noise(480, 640, seed)), jpeg(noise()))).status_code == 200
    spent_ns = time.monotonic_ns() - began_ns
    timings, missing = meter.end(time.sleep)
    assert timings is not None, missing
    front = timings.phases["front_half"]
    # Triton counts a request shortly after it has answered it.
    assert abs(front.count - COUNT) <= 1
    assert abs(timings.rows - 2 * COUNT) <= 2
    # A picture of 640 x 480 takes much longer than the mean of 3,072 pixels.
    assert timings.phases["compute"].ns < front.ns < spent_ns


@pytest.mark.parametrize("label", BACKENDS)
def test_pixels_are_answered_alike_and_must_be_of_the_models_size(
    label: str, tmp_path: Path
) -> None:
    pipeline = sample_pictures.write_pipeline(tmp_path / "models", "uint8")
    place = Placement(cpus=(0,), usable_cpus=2)
    with running(label, pipeline, place, repository=tmp_path / "r", logs=tmp_path) as server:
        found = check_parity(server.url, server.model, reference_for(pipeline))
        assert found.passed, found.detail
        for height, width in ((HEIGHT, WIDTH + 1), (WIDTH, HEIGHT), (480, 640)):
            assert post(server, noise(height, width)[None]).status_code == 400


@pytest.mark.parametrize(
    "name", ["image_classifier_jpeg", "image_classifier_uint8", "face_detector_jpeg"]
)
def test_the_zoos_models_see_in_camera_frames_what_these_show(name: str) -> None:
    pipeline = find_model(name)
    ensure_built(pipeline, print)
    runner, entry = open_runner(pipeline), ENTRIES[pipeline.computed.name]
    for sample in samples_for(pipeline):
        assert entry.fault(sample.name, runner.run(sample.inputs)) is None
