"""What both load engines must do, the same tests over each."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from loadtest.payload import in_sequence, write_payloads
from loadtest.prepare import payloads_from
from serving.models.repository import Model
from serving.parity import reference_for
from serving.process import free_port
from serving.protocol import InferRequest, encode_response
from tests.faulty_server import SLOW_S
from tests.watching_server import Event, Watch, watching_server

ENGINES = ("native", "python")
ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Bench:
    """A faulty server, and requests whose first one it knows the answer to."""

    url: str
    payloads: Path

    def run(self, engine: str, mode: str, **given: object) -> Any:
        spec = {
            "engine": engine,
            "url": self.url,
            "model": mode,
            "payloads": str(self.payloads),
            "seconds": 0.5,
            **given,
        }
        done = subprocess.run(
            [sys.executable, "-m", "tests.engine_probe", json.dumps(spec)],
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
            cwd=ROOT,
        )
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)


@contextmanager
def faulty_server(folder: Path, tiny: Model, *certificate: str) -> Iterator[str]:
    """Its port. The requests are left in ``folder``."""
    payload = payloads_from(tiny, reference_for(tiny))[0]
    write_payloads(folder / "payloads", [payload])
    wanted = InferRequest((), binary_default=True)
    body, length = encode_response("tiny", 1, wanted, [*payload.expected.values()])
    (folder / "reply").write_bytes(body)
    arguments = [str(folder / "reply"), str(length), *certificate]
    server = subprocess.Popen(
        [sys.executable, "-m", "tests.faulty_server", *arguments],
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
    )
    assert server.stdout is not None
    yield server.stdout.readline().strip()
    server.kill()
    server.wait()


@pytest.fixture(scope="module")
def bench(tiny: Model, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    folder = tmp_path_factory.mktemp("bench")
    with faulty_server(folder, tiny) as port:
        yield Bench(f"http://127.0.0.1:{port}", folder / "payloads")


@pytest.fixture(params=ENGINES)
def engine(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.mark.parametrize("mode", ["ok", "bytewise", "chunked", "closing", "endless"])
def test_every_way_to_frame_a_right_answer_is_read(bench: Bench, engine: str, mode: str) -> None:
    found = bench.run(engine, mode, users=2)
    assert len(found["outcome"]) > 20
    assert set(found["outcome"]) == {"ok"}
    assert set(found["status"]) == {200}
    assert (found["lost"], found["unchecked"], found["busy"]) == (0, 0, 0)


@pytest.mark.parametrize(
    ("mode", "outcome"),
    [
        ("wrong", "wrong_answer"),
        ("short", "wrong_answer"),
        ("400", "client_fault_4xx"),
        ("503", "server_fault_5xx"),
        ("garbage", "connection_error"),
        ("negative", "connection_error"),
        ("half", "connection_error"),
        ("reset", "connection_error"),
    ],
)
def test_every_fault_is_counted_in_its_class(
    bench: Bench, engine: str, mode: str, outcome: str
) -> None:
    found = bench.run(engine, mode, users=2)
    assert set(found["outcome"]) == {outcome}
    errors = outcome == "connection_error"
    # A broken server is not asked without a pause.
    assert 4 <= len(found["outcome"]) < (40 if errors else 10**6)


def test_nobody_listening_is_counted(bench: Bench, engine: str) -> None:
    found = bench.run(engine, "ok", users=2, url=f"http://127.0.0.1:{free_port()}")
    assert set(found["outcome"]) == {"connection_error"}


def test_a_hanging_server_ends_in_timeouts_at_the_limit(bench: Bench, engine: str) -> None:
    found = bench.run(engine, "hang", users=2, timeout_s=0.3, seconds=0.8)
    assert set(found["outcome"]) == {"timeout"}
    waited = np.array(found["done"]) - np.array(found["sent"])
    assert waited.min() >= 300
    assert len(waited) >= 4


def test_what_is_in_flight_at_the_end_is_unfinished(bench: Bench, engine: str) -> None:
    found = bench.run(engine, "hang", users=3, seconds=0.3, wait=False)
    assert found["outcome"] == ["unfinished"] * 3


def test_a_closed_loop_keeps_its_number_in_flight(bench: Bench, engine: str) -> None:
    found = bench.run(engine, "slow", users=4, seconds=1.5)
    due, sent, done = (np.array(found[name]) for name in ("due", "sent", "done"))
    middle = (done > 300) & (done < 1300)
    # Each is due when the one before it was done, and leaves then.
    assert (sent - due)[middle].max() < 50
    assert np.isin(due[middle].round(6), np.append(done.round(6), due.min().round(6))).all()
    assert middle.sum() == pytest.approx(4 / SLOW_S, abs=4)


def test_an_open_loop_waits_for_nobody(bench: Bench, engine: str) -> None:
    """50 requests in half a second to a server that takes 200 ms each: ten or more at once."""
    arrivals = [10 * i for i in range(50)]
    found = bench.run(engine, "slow", arrivals_ms=arrivals, seconds=1.0)
    assert found["outcome"] == ["ok"] * 50
    due, sent, done = (np.array(found[name]) for name in ("due", "sent", "done"))
    assert sorted(due.round(3).tolist()) == pytest.approx(arrivals, abs=0.01)
    assert np.median(sent - due) < 5
    assert np.median(done - due) == pytest.approx(SLOW_S * 1e3, rel=0.25)


def test_past_its_connections_a_request_is_not_sent_and_told(bench: Bench, engine: str) -> None:
    arrivals = [5 * i for i in range(30)]
    found = bench.run(engine, "slow", arrivals_ms=arrivals, connections=3, seconds=1.0)
    assert len(found["outcome"]) == 30
    counts = Counter(found["outcome"])
    assert set(counts) == {"ok", "not_sent"}
    assert counts["ok"] == 3


def test_samples_of_a_query_go_together_and_the_next_waits_for_all(
    bench: Bench, engine: str
) -> None:
    found = bench.run(engine, "slow", users=5, together=True, seconds=1.2)
    queries = np.array(found["query"])
    due, done = np.array(found["due"]), np.array(found["done"])
    whole = [q for q in np.unique(queries) if (queries == q).sum() == 5]
    assert len(whole) >= 4
    for before, after in pairwise(whole):
        assert len(set(due[queries == after])) == 1
        assert due[queries == after][0] >= done[queries == before].max() - 1e-6


def test_a_limit_sends_so_many_and_all_are_due_at_the_start(bench: Bench, engine: str) -> None:
    found = bench.run(engine, "ok", users=4, requests=37, seconds=0.7)
    assert len(found["outcome"]) == 37
    assert set(found["due"]) == {0.0}


STREAMS, SAMPLES = 3, 3
"""Three samples to a pass: its first, its last, and the one that is neither."""


@pytest.fixture
def watched(tiny: Model, tmp_path: Path) -> Iterator[tuple[Bench, Watch]]:
    """Requests of streams, and a server that takes 20 ms for each and watches their order."""
    payload = payloads_from(tiny, reference_for(tiny))[0]
    one_pass = [payload] * SAMPLES
    payloads = [one for number in range(STREAMS) for one in in_sequence(one_pass, number + 1)]
    write_payloads(tmp_path, payloads)
    wanted = InferRequest((), binary_default=True)
    body, length = encode_response("tiny", 1, wanted, [*payload.expected.values()])
    assert length is not None
    with watching_server(body, length, service_s=0.02) as watch:
        yield Bench(watch.url, tmp_path), watch


def _assert_in_order(events: list[Event], *, whole: bool) -> None:
    """From the first sample on, pass after pass, on one connection, one request at a time."""
    assert len({event.port for event in events}) == 1
    assert [event.came for event in events] == [True, False] * (len(events) // 2)
    steps = [
        (event.parameters["sequence_start"], event.parameters["sequence_end"])
        for event in events
        if event.came
    ]
    one_pass = [(True, False), (False, False), (False, True)]
    assert steps == (one_pass * len(steps))[: len(steps)]
    assert len(steps) >= 2 * SAMPLES
    assert not whole or len(steps) % SAMPLES == 0


def _assert_next_after_reply(found: Any) -> None:
    streams, steps = np.divmod(np.array(found["payload"]), SAMPLES)
    sent, done = np.array(found["sent"]), np.array(found["done"])
    for stream in range(STREAMS):
        turns = np.argsort(sent[streams == stream])
        own_steps = steps[streams == stream][turns]
        assert own_steps.tolist() == [turn % SAMPLES for turn in range(len(turns))]
        assert (sent[streams == stream][turns][1:] >= done[streams == stream][turns][:-1]).all()


def test_a_stream_keeps_its_order_on_its_connection(
    watched: tuple[Bench, Watch], engine: str
) -> None:
    bench, watch = watched
    found = bench.run(engine, "tiny", users=STREAMS, streams=STREAMS, connections=STREAMS)
    assert set(found["outcome"]) == {"ok"}
    assert set(watch.by_sequence()) == {1, 2, 3}
    for events in watch.by_sequence().values():
        _assert_in_order(events, whole=False)
    _assert_next_after_reply(found)


def test_a_frame_waits_for_its_stream_and_stays_due(
    watched: tuple[Bench, Watch], engine: str
) -> None:
    """Frames every 6 ms on each stream, of which each takes 20 ms: none is lost or overtaken."""
    bench, watch = watched
    turns = range(4 * SAMPLES * STREAMS)
    arrivals = [2 * turn for turn in turns]
    chosen = [turn % STREAMS * SAMPLES + turn // STREAMS % SAMPLES for turn in turns]
    found = bench.run(
        *(engine, "tiny"),
        streams=STREAMS,
        connections=STREAMS,
        seconds=0.2,
        arrivals_ms=arrivals,
        arrival_payloads=chosen,
    )
    assert found["outcome"] == ["ok"] * len(turns)
    assert sorted(found["due"]) == pytest.approx(arrivals, abs=0.01)
    for events in watch.by_sequence().values():
        _assert_in_order(events, whole=True)
    _assert_next_after_reply(found)


def policed(bench: Bench, engine: str, arrivals_ms: list[float], **policy: object) -> Any:
    """What became of frames of one stream, by when they were due; each takes 20 ms."""
    found = bench.run(
        *(engine, "tiny"),
        streams=STREAMS,
        connections=STREAMS,
        seconds=0.2,
        arrivals_ms=arrivals_ms,
        arrival_payloads=[number % SAMPLES for number in range(len(arrivals_ms))],
        **policy,
    )
    assert found["busy"] == 0
    order = np.argsort(found["due"])
    frames = {name: np.array(found[name])[order] for name in ("due", "sent", "done", "outcome")}
    assert frames["due"] == pytest.approx(arrivals_ms, abs=0.01)
    assert set(frames["outcome"]) == {"ok", "dropped"}
    unsent = frames["outcome"] == "dropped"
    assert (frames["sent"] == frames["done"])[unsent].all()
    return frames


def test_the_latest_frame_takes_the_place_of_the_one_that_waits(
    watched: tuple[Bench, Watch], engine: str
) -> None:
    """Three come on the heels of the first, and one when the server is idle again."""
    bench, watch = watched
    frames = policed(bench, engine, [0.0, 0.02, 0.04, 0.06, 100.0], policy="latest-only")
    assert frames["outcome"].tolist() == ["ok", "dropped", "dropped", "ok", "ok"]
    # Each ends when the next one comes.
    assert (frames["done"][1:3] >= frames["due"][2:4]).all()
    assert frames["done"][2] < frames["sent"][3]
    assert sum(event.came for event in watch.events) == 3


def test_a_frame_that_is_late_when_its_turn_comes_is_dropped(
    watched: tuple[Bench, Watch], engine: str
) -> None:
    """Every 3 ms a frame, to a server that takes 20: turns come far too seldom for all."""
    bench, watch = watched
    arrivals_ms = [3.0 * number for number in range(50)]
    frames = policed(bench, engine, arrivals_ms, policy="drop-late", deadline_ns=30_000_000)
    right = frames["outcome"] == "ok"
    waited_ms = frames["sent"] - frames["due"]
    assert 3 < right.sum() < 25
    assert (waited_ms[~right] >= 30).all()
    # The age at which most are sent lies between what is kept and the deadline.
    assert 15 < np.median(waited_ms[right]) < 30
    assert sum(event.came for event in watch.events) == right.sum()


def test_frames_whose_turn_never_came_are_told(bench: Bench, engine: str, tiny: Model) -> None:
    folder = bench.payloads.with_name("streams")
    write_payloads(folder, in_sequence([payloads_from(tiny, reference_for(tiny))[0]] * 2, 1))
    found = Bench(bench.url, folder).run(
        *(engine, "hang"),
        streams=1,
        connections=1,
        seconds=0.3,
        wait=False,
        arrivals_ms=[0, 10, 20, 30],
        arrival_payloads=[0, 1, 0, 1],
    )
    assert found["outcome"] == ["unfinished", "not_sent", "not_sent", "not_sent"]
    assert found["payload"] == [0, 1, 0, 1]
    assert found["busy"] == 0


def test_first_byte_lies_between_sent_and_done(bench: Bench, engine: str) -> None:
    found = bench.run(engine, "bytewise", users=1)
    for sent, first, done in zip(found["sent"], found["first_byte"], found["done"], strict=True):
        assert sent < first <= done
    assert np.mean(np.array(found["done"]) - np.array(found["first_byte"])) > 0.05


def test_headers_go_with_every_request(bench: Bench, engine: str) -> None:
    secret = {"Authorization": "Bearer secret"}
    assert set(bench.run(engine, "authorized", users=2, headers=secret)["outcome"]) == {"ok"}
    assert set(bench.run(engine, "authorized", users=2)["outcome"]) == {"client_fault_4xx"}


def test_tls_is_trusted_only_as_told(tiny: Model, tmp_path: Path) -> None:
    certificate = tmp_path / "certificate.pem"
    names = ("-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1")
    subprocess.run(
        [
            *("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", *names),
            *("-keyout", str(certificate), "-out", str(tmp_path / "public.pem")),
        ],
        check=True,
        capture_output=True,
    )
    with certificate.open("a") as both:
        both.write((tmp_path / "public.pem").read_text())
    with faulty_server(tmp_path, tiny, str(certificate)) as port:
        bench = Bench(f"https://127.0.0.1:{port}", tmp_path / "payloads")
        trusted = bench.run("python", "ok", users=2, ca_file=str(tmp_path / "public.pem"))
        assert set(trusted["outcome"]) == {"ok"}
        assert set(bench.run("python", "ok", users=2)["outcome"]) == {"connection_error"}
