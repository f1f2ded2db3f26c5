"""Scenarios: what each makes, and that bad input is one line before anything starts."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from loadtest.feeder import in_turn
from loadtest.payload import write_payloads
from loadtest.prepare import payloads_from
from loadtest.scenarios import SCENARIOS, ClosedLoop, OpenLoop, Scenario, is_closed, make_load
from loadtest.schedule import Times, share
from loadtest.trial import TrialSpec
from serving.errors import UsageError
from serving.models.repository import Model
from serving.parity import reference_for
from serving.protocol.header import json_object
from tests.sample_trials import settings

CLOSED = ("closed", "single-stream", "multi-stream", "offline", "streams")
GIVEN: dict[str, dict[str, str]] = {"spike": {"at_s": "2", "length_s": "1"}}


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    path = tmp_path / "trace.csv"
    path.write_text("timestamp,size\n5,1\n5.5,1\n7,1\n")
    return path


def arrivals(load: OpenLoop, seconds: float, seed: int = 1) -> Times:
    found: list[Times] = []
    for chunk in load.arrivals(np.random.default_rng(seed)):
        found.append(chunk[chunk < seconds * 1e9])
        if len(found[-1]) < len(chunk):
            break
    return np.concatenate(found)


@pytest.mark.parametrize("name", SCENARIOS)
def test_every_scenario_makes_the_load_of_its_level(name: str, trace: Path) -> None:
    given = {"trace": str(trace)} if name == "replay" else GIVEN.get(name, {})
    scenario = SCENARIOS[name]
    load = make_load(name, scenario.levels[0], given, 10.0)
    assert isinstance(load, ClosedLoop if name in CLOSED else OpenLoop)
    if isinstance(load, ClosedLoop):
        assert load.users == scenario.levels[0]
        return
    times = arrivals(load, 10.0)
    assert len(times)
    assert (np.diff(times) >= 0).all()
    assert (arrivals(load, 10.0) == times).all()
    if load.length_s is not None:
        assert not load.stationary
        assert times[-1] <= load.length_s * 1e9


def test_the_mlperf_scenarios_are_as_mlperf_means_them() -> None:
    assert make_load("single-stream", 1, {}, 10) == ClosedLoop(users=1)
    assert make_load("multi-stream", 8, {}, 10) == ClosedLoop(users=8, together=True)
    assert make_load("offline", 4, {"requests": "24576"}, 10) == ClosedLoop(4, requests=24576)


@pytest.mark.parametrize(
    ("name", "level", "given", "told"),
    [
        ("sever", 1, {}, "there is no scenario 'sever'"),
        ("server", -1, {}, "-1 requests/s"),
        ("server", 0, {}, "0 requests/s"),
        ("constant", float("inf"), {}, "inf requests/s"),
        ("closed", 1.5, {}, "Give a whole number"),
        ("server", 1, {"rate": "5"}, "parameter 'rate'"),
        ("bursty", 1, {"burstiness": "0"}, "parameter 'burstiness'"),
        ("bursty", 1, {"burstiness": "many"}, "parameter 'burstiness'"),
        ("streams", 1.5, {}, "Give a whole number"),
        ("streams", 2, {"pace_fps": "0"}, "parameter 'pace_fps'"),
        ("offline", 1, {"requests": "-4"}, "parameter 'requests'"),
        ("spike", 1, {"at_s": "9", "length_s": "2"}, "the spike ends after 11 s"),
        ("replay", 1, {}, "parameter 'trace'"),
        ("replay", 1, {"trace": "none.csv"}, "cannot be read"),
    ],
)
def test_mistakes_are_told(name: str, level: float, given: dict[str, str], told: str) -> None:
    with pytest.raises(UsageError) as caught:
        make_load(name, level, given, 10.0)
    assert told in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "text", "told"),
    [
        ("t.csv", "timestamp\n1\n3\n2\n", "line 4: time goes back from 3 to 2 s"),
        ("t.csv", "time\n1\n", "line 2 has no 'timestamp'"),
        ("t.csv", "timestamp\nsoon\n", "line 2: 'soon' is no number"),
        ("t.csv", "timestamp\nnan\n", "is no number"),
        ("t.csv", "timestamp\n", "holds no arrivals"),
        ("t.csv", "", "holds no arrivals"),
        ("t.jsonl", '{"timestamp": 1}\n{"timestamp": 0}\n', "line 2: time goes back"),
        ("t.jsonl", '{"timestamp": 1}\n{\n', "line 2 is no JSON"),
        ("t.jsonl", "[1]\n", "line 1 has no 'timestamp'"),
    ],
)
def test_a_bad_trace_is_told_with_its_line(tmp_path: Path, name: str, text: str, told: str) -> None:
    path = tmp_path / name
    path.write_text(text)
    with pytest.raises(UsageError) as caught:
        make_load("replay", 1, {"trace": str(path)}, 10.0)
    assert told in str(caught.value)


def test_a_replay_ends_just_after_its_last_arrival(trace: Path) -> None:
    load = make_load("replay", 2, {"trace": str(trace)}, 99.0)
    assert isinstance(load, OpenLoop)
    assert load.length_s == pytest.approx(1.0, abs=0.01)
    assert arrivals(load, load.length_s).tolist() == [0, 250_000_000, 1_000_000_000]


def test_streams_without_a_pace_are_as_many_users() -> None:
    assert make_load("streams", 5, {}, 10) == ClosedLoop(users=5)


def test_each_paced_stream_keeps_its_phase_and_its_period() -> None:
    load = make_load("streams", 3, {"pace_fps": "25"}, 10)
    assert isinstance(load, OpenLoop)
    assert load.streams == 3
    times = arrivals(load, 400.0)
    phases = times[:3]
    assert len(set(phases.tolist())) == 3
    assert (phases < 1e9 / 25).all()
    for stream, phase in enumerate(phases):
        own = times[stream::3]
        # From the start on, not from the frame before: errors do not add up.
        assert np.abs(own - phase - np.arange(len(own)) * 40_000_000).max() <= 1
    assert (np.diff(times) >= 0).all()
    assert (arrivals(load, 1.0, seed=2)[:3] != phases).all()


@pytest.mark.parametrize("chunk", [1, 7, 64])
@pytest.mark.parametrize("streams", [1, 4, 5])
def test_generators_share_streams_whole(streams: int, chunk: int) -> None:
    every = np.arange(1000)
    chunks = [every[at : at + chunk] for at in range(0, 1000, chunk)]
    for index in range(2):
        mine = np.concatenate([*share(chunks, index, 2, streams)])
        assert mine.tolist() == [i for i in every if i % streams % 2 == index]


def test_each_stream_of_each_generator_has_a_sequence_of_its_own(
    tiny: Model, tmp_path: Path
) -> None:
    write_payloads(tmp_path, payloads_from(tiny, reference_for(tiny)))
    seen: list[int] = []
    for index in range(2):
        target = streams_of(tmp_path, levels=(1, 3), index=index, count=2, connections=2).target()
        assert (target.streams, target.connections) == (2, 2)
        samples = len(target.payloads) // 2
        for payload in target.payloads:
            header = json_object(payload.body[: payload.header_length], with_binary=True)
            seen.append(header["parameters"]["sequence_id"])
    assert seen == [number for number in (1, 3, 2, 4) for _ in range(samples)]


def test_more_streams_than_connections_are_refused(tiny: Model, tmp_path: Path) -> None:
    write_payloads(tmp_path, payloads_from(tiny, reference_for(tiny)))
    with pytest.raises(UsageError, match=r"^9 streams .* its 8 connections"):
        streams_of(tmp_path, levels=(2, 9), connections=8).target()


def streams_of(payloads: Path, **given: object) -> TrialSpec:
    values = {"url": "http://127.0.0.1:1", "model": "tiny", "payloads": payloads, "seed": 1}
    values |= {"scenario": "streams", "duration_s": 1.0, "timeout_s": 1.0, "values_every": 20}
    return TrialSpec.model_validate(
        {**values, "server_pid": None, "output": payloads / "output", **given}
    )


def test_every_stream_goes_through_its_samples_in_order() -> None:
    first, then = in_turn(3, 4, 0, 7), in_turn(3, 4, 7, 20)
    streams, steps = np.divmod(np.concatenate([first, then]), 4)
    for stream in range(3):
        assert steps[streams == stream].tolist() == [step % 4 for step in range(9)]


@pytest.mark.parametrize("scenario", SCENARIOS.values(), ids=lambda s: s.name)
def test_every_scenario_says_what_it_is(scenario: Scenario) -> None:
    assert scenario.summary
    assert scenario.level_name
    assert scenario.parameters.model_config["extra"] == "forbid"


@pytest.mark.parametrize(
    ("scenario", "parameters", "closed"),
    [
        ("closed", {}, True),
        ("server", {}, False),
        ("streams", {}, True),
        ("replay", {"trace": "a-trace-that-is-gone.csv"}, False),
    ],
)
def test_whether_a_run_was_closed_is_told_without_its_files(
    scenario: str, parameters: dict[str, str], closed: bool
) -> None:
    asked = settings(scenario=scenario, parameters=parameters)
    assert is_closed(asked) is closed
