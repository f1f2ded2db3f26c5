"""The serving benchmark's own arithmetic: what it asks, what it takes for right, how it divides."""

from __future__ import annotations

import importlib
import subprocess
from pathlib import Path

import numpy as np
import pytest

from benchmarks.cases import Case, alone, changed, checked, joined, queue_of
from benchmarks.endurance import answered_within
from benchmarks.limit import request_bytes
from benchmarks.peers import PeerResult, Unavailable
from benchmarks.rows import STATED, stated
from benchmarks.servers import base, bentoml, environment
from benchmarks.servers.base import RAW, V2_BINARY, V2_JSON, PeerServer, Wire
from benchmarks.serving import PEERS
from benchmarks.turns import ratios
from loadtest.histogram import encode, new_histogram
from serving.models.config import load_message
from serving.protocol import InferRequest, Tensor, encode_response
from tests.sample_models import write_tiny


@pytest.mark.parametrize(
    ("start", "length"),
    [
        (b"", None),
        (b"POST / HTTP/1.1\r\nContent-Length: 7\r\n", None),
        (b"POST / HTTP/1.1\r\nContent-Length: 7\r\n\r\nab", 43 + 2),
        (b"POST / HTTP/1.1\r\ncontent-length:12\r\nHost: a\r\n\r\n", 47 + 12),
        (b"GET / HTTP/1.1\r\nHost: a\r\n\r\n", 27),
        (b"GET / HTTP/1.1\r\nHost: a\r\n\r\n\r\nContent-Length: 9\r\n", 27),
    ],
)
def test_a_request_ends_where_its_head_says(start: bytes, length: int | None) -> None:
    assert request_bytes(start) == length


def test_goodput_counts_right_answers_in_time() -> None:
    def histogram(*times_ms: int) -> str:
        found = new_histogram()
        for time_ms in times_ms:
            found.record_value(time_ms * 1_000_000)
        return encode(found)

    windows = [
        {"ok": histogram(5, 50, 500), "server_fault_5xx": histogram(1, 1)},
        {},
        {"ok": histogram(20)},
    ]
    assert answered_within(windows, 100e6) == 3
    assert answered_within(windows, 1e6) == 0
    assert answered_within(windows, 1e9) == 4


def test_ratios_pair_the_results_of_one_turn() -> None:
    ours = [PeerResult(100.0, 1.0, 4.0, 0), PeerResult(300.0, 1.0, 9.0, 0)]
    theirs = [PeerResult(50.0, 1.0, 8.0, 0), PeerResult(100.0, 1.0, 3.0, 0)]
    assert ratios(ours, theirs) == [2.0, 3.0]
    assert ratios(ours, theirs, "p99_ms") == [0.5, 3.0]
    assert stated("gRPC / HTTP", [0.2, 0.4]).target == STATED


def test_a_changed_configuration_serves_the_same_file(tmp_path: Path) -> None:
    tiny = write_tiny(tmp_path / "tiny")
    waiting = changed(tiny, tmp_path / "a", joined(32, delay_us=200), queue_of(4))
    assert waiting.config.max_batch_size == 32
    batching = load_message(waiting.folder / "config.pbtxt").dynamic_batching
    assert batching.max_queue_delay_microseconds == 200
    assert batching.default_queue_policy.max_queue_size == 4
    assert changed(tiny, tmp_path / "b", joined(32), alone).config.dynamic_batching is None
    assert changed(tiny, tmp_path / "c", joined(32)).config.dynamic_batching is not None
    guarded = changed(tiny, tmp_path / "d", checked("finite"))
    assert guarded.config.parameters["check.x"] == "finite"
    assert guarded.sha256() == tiny.sha256()


def _reply(wire: Wire, answer: np.ndarray) -> tuple[bytes, str | None]:
    if wire is RAW:
        return answer.tobytes(), None
    if wire is bentoml.PEER.wire:
        return str(answer.tolist()).encode(), None
    wanted = InferRequest((), binary_default=wire is V2_BINARY)
    body, length = encode_response("tiny", 1, wanted, [Tensor.of("y", answer)])
    return body, None if length is None else str(length)


@pytest.mark.parametrize("wire", [RAW, V2_BINARY, V2_JSON, bentoml.PEER.wire], ids=lambda w: w.name)
def test_a_peer_is_right_when_it_answers_as_the_session_does(wire: Wire, tmp_path: Path) -> None:
    case = Case.of(write_tiny(tmp_path / "tiny"), tmp_path / "case")
    peer = PeerServer("a peer", "peer", ("peer==1",), "/infer", wire)
    assert peer.target(case, "http://127.0.0.1:1").infer_url == "http://127.0.0.1:1/infer"
    right = case.reference.answers[0]["y"]
    assert peer.is_right(case, *_reply(wire, right))
    assert not peer.is_right(case, *_reply(wire, case.reference.answers[1]["y"]))
    assert not peer.is_right(case, *_reply(wire, right[:, :9]))
    assert not peer.is_right(case, b"what?", None)


def test_a_request_carries_the_row_that_is_compared(tmp_path: Path) -> None:
    case = Case.of(write_tiny(tmp_path / "tiny"), tmp_path / "case")
    target = PeerServer("a peer", "peer", ("peer==1",), "/").target(case, "http://127.0.0.1:1")
    row = case.reference.samples[0].inputs["x"]
    assert np.array_equal(np.frombuffer(target.body, np.float32), row[0])


@pytest.mark.parametrize("peer", [peer for peer, _, _ in PEERS], ids=lambda peer: peer.name)
def test_every_peer_is_pinned_and_has_its_app(peer: PeerServer) -> None:
    assert all("==" in requirement for requirement in peer.requirements)
    folder = Path(base.__file__).parent
    assert (folder / "apps" / f"{peer.package}_app.py").is_file()
    assert importlib.import_module(f"benchmarks.servers.{peer.package}").__doc__


def test_what_pip_cannot_install_is_said_and_not_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("INFERSWEEP_CACHE", str(tmp_path))
    asked: list[list[str]] = []

    def refuse(argv: list[str], **_: object) -> subprocess.CompletedProcess[str]:
        asked.append(argv)
        return subprocess.CompletedProcess(argv, 1, "", "WARNING: slow\nERROR: No matching a==1\n")

    monkeypatch.setattr(environment.subprocess, "run", refuse)
    for requirements in (["a==1"], ["a==2"], ["a==1"]):
        with pytest.raises(Unavailable, match="pip install: ERROR: No matching a==1"):
            environment.ensure_environment("a", requirements, lambda _: None)
    folders = {argv[argv.index("--python") + 1] for argv in asked}
    assert len(asked) == 3
    assert len(folders) == 2
