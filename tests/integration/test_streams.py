"""Streams of a stateful model: right on every backend, and taken by Triton's sequence batcher."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from loadtest.payload import Encoding, write_payloads
from loadtest.prepare import payloads_from
from loadtest.runner import Fleet, generate
from loadtest.trial import LevelOutput, TrialSpec
from serving.deployment import Placement, running
from serving.models.repository import DEFAULT_ROOT, Model
from serving.models.zoo import ENTRIES
from serving.models.zoo.build import build
from serving.parity import reference_for

SEQUENCE_BATCHING = {
    "direct": "sequence_batching { direct { } }",
    "oldest": "sequence_batching { oldest { max_candidate_sequences: 8 } }",
}


@pytest.fixture(scope="module")
def policy(tmp_path_factory: pytest.TempPathFactory) -> Model:
    model = Model(tmp_path_factory.mktemp("policy"), "flight_policy")
    model.folder.mkdir()
    shutil.copy(DEFAULT_ROOT / model.name / "config.pbtxt", model.folder)
    build(ENTRIES[model.name], model, print)
    return model


def measured(
    model: Model,
    folder: Path,
    backend: str,
    *,
    encoding: Encoding = "binary",
    processes: int = 1,
    **changes: object,
) -> list[LevelOutput]:
    """Each level's outcome of ``streams`` on a fresh server."""
    for name in ("repository", "logs"):
        (folder / name).mkdir()
    write_payloads(
        folder / "payloads", payloads_from(model, reference_for(model), encoding=encoding)
    )
    with running(
        *(backend, model, Placement((0,), 2)),
        repository=folder / "repository",
        logs=folder / "logs",
    ) as server:
        values = {
            "url": server.address_for(encoding),
            "model": model.name,
            "payloads": folder / "payloads",
            "scenario": "streams",
            "levels": (3, 2),
            "duration_s": 1.0,
            "timeout_s": 5.0,
            "seed": 1,
            "values_every": 1,
            "server_pid": None,
            "output": folder / "output.jsonl",
        }
        spec = TrialSpec.model_validate({**values, **changes})
        return [*generate(spec, Fleet((1,), processes), folder / "generator.log")]


@pytest.mark.parametrize("backend", ["onnxruntime", "triton", "fastapi"])
def test_every_backend_answers_streams_of_a_stateful_model(
    policy: Model, tmp_path: Path, backend: str
) -> None:
    for output in measured(policy, tmp_path, backend):
        assert output.outcomes["ok"] == output.planned > 100


@pytest.mark.parametrize("processes", [1, 2])
def test_paced_streams_send_every_frame(policy: Model, tmp_path: Path, processes: int) -> None:
    outputs = measured(
        *(policy, tmp_path, "onnxruntime"),
        processes=processes,
        parameters={"pace_fps": "50"},
        levels=(3, 2),
        duration_s=2.0,
    )
    assert [output.outcomes["ok"] for output in outputs] == [300, 200]
    assert [output.planned for output in outputs] == [300, 200]
    frames = [[(one.name, one.frames) for one in output.frames] for output in outputs]
    assert frames == [[("1", 100), ("2", 100), ("3", 100)], [("1", 100), ("2", 100)]]


@pytest.mark.parametrize(
    ("strategy", "encoding", "engine"),
    [
        ("direct", "binary", "native"),
        ("oldest", "binary", "native"),
        ("oldest", "json", "python"),
        ("oldest", "grpc", "python"),
    ],
)
def test_the_sequence_batcher_takes_every_request(
    policy: Model, tmp_path: Path, strategy: str, encoding: Encoding, engine: str
) -> None:
    """Triton answers 400 to a request without a sequence, and to one whose first never came."""
    model = Model(tmp_path / "models", policy.name)
    shutil.copytree(policy.folder, model.folder)
    config = model.folder / "config.pbtxt"
    wanted = SEQUENCE_BATCHING[strategy]
    text, count = re.subn(r"dynamic_batching \{[^}]*\}", wanted, config.read_text())
    assert count == 1
    config.write_text(text)
    outputs = measured(model, tmp_path, "triton", encoding=encoding, engine=engine)
    for output in outputs:
        assert output.outcomes["ok"] == output.planned > 100
