"""Scenarios: what each makes, and that bad input is one line before anything starts."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from loadtest.camera_schedule import Cameras, Frames, share_of
from loadtest.engine.base import Target
from loadtest.feeder import in_order
from loadtest.payload import write_payloads
from loadtest.prepare import payloads_from
from loadtest.scenarios import SCENARIOS, ClosedLoop, OpenLoop, Scenario, is_closed, make_load
from loadtest.schedule import Times
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
        ("cameras", 1.5, {}, "Give a whole number"),
        ("cameras", 2, {"fps": "0"}, "parameter 'fps'"),
        ("cameras", 2, {"fps": "10", "jitter_ms": "101"}, "jitter of 101000000 ns"),
        ("cameras", 2, {"phase": "together"}, "parameter 'phase'"),
        ("cameras", 2, {"policy": "newest"}, "parameter 'policy'"),
        ("cameras", 2, {"policy": "drop-late"}, "drop-late needs a deadline"),
        ("cameras", 2, {"deadline_ms": "0"}, "parameter 'deadline_ms'"),
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


FLIGHT = "seconds,camera\n10,front\n10.02,down\n10.1,front\n10.1,front\n10.25,left\n"


def flight(tmp_path: Path, text: str, **given: str) -> OpenLoop:
    path = tmp_path / "flight.csv"
    path.write_text(text)
    named = {"trace": str(path), "column": "seconds", "stream": "camera"}
    load = make_load("replay", 2, named | given, 10.0)
    assert isinstance(load, OpenLoop)
    return load


def test_the_cameras_of_a_flight_keep_their_frames(tmp_path: Path) -> None:
    load = flight(tmp_path, FLIGHT, policy="drop-late", deadline_ms="40")
    assert load.streams is not None
    assert load.streams.names == ("front", "down", "left")
    assert (load.streams.policy, load.streams.deadline_ns) == ("drop-late", 40_000_000)
    times, cameras = frames_of(load, 10.0)
    assert times.tolist() == [0, 10_000_000, 50_000_000, 50_000_000, 125_000_000]
    assert cameras.tolist() == [0, 1, 0, 0, 2]
    assert not load.stationary


@pytest.mark.parametrize(
    ("text", "given", "told"),
    [
        ("seconds\n1\n", {}, "line 2 has no 'camera'"),
        ("seconds,camera\n1, \n", {}, "line 2 does not say which camera"),
        ("seconds,camera\n1,a\n0.5,a\n", {}, "line 3: time goes back from 1 to 0.5 s"),
        (FLIGHT, {"policy": "drop-late"}, "drop-late needs a deadline"),
    ],
)
def test_a_flight_that_cannot_be_replayed_is_told(
    tmp_path: Path, text: str, given: dict[str, str], told: str
) -> None:
    with pytest.raises(UsageError) as caught:
        flight(tmp_path, text, **given)
    assert told in str(caught.value)


def test_a_policy_without_cameras_is_refused(trace: Path) -> None:
    for given in ({"policy": "latest-only"}, {"deadline_ms": "5"}):
        with pytest.raises(UsageError, match="needs a trace of cameras"):
            make_load("replay", 1, {"trace": str(trace), **given}, 10.0)


def test_streams_without_a_pace_are_as_many_users() -> None:
    assert make_load("streams", 5, {}, 10) == ClosedLoop(users=5, in_order=True)


def test_each_paced_stream_keeps_its_phase_and_its_period() -> None:
    load = make_load("streams", 3, {"pace_fps": "25"}, 10)
    assert isinstance(load, OpenLoop)
    times, streams = frames_of(load, 400.0)
    phases = {stream: times[streams == stream][0] for stream in range(3)}
    assert len(set(phases.values())) == 3
    for stream, phase in phases.items():
        own = times[streams == stream]
        assert phase < 1e9 / 25
        # From the start on, not from the frame before: errors do not add up.
        assert np.abs(own - phase - np.arange(len(own)) * 40_000_000).max() <= 1
    assert (np.diff(times) >= 0).all()
    assert (frames_of(load, 0.04, seed=2)[0] != sorted(phases.values())).all()


def frames_of(load: object, seconds: float, seed: int = 1) -> Frames:
    assert isinstance(load, OpenLoop)
    assert load.streams is not None
    parts: list[Frames] = []
    for times, streams in load.streams.frames(np.random.default_rng(seed)):
        inside = times < seconds * 1e9
        parts.append((times[inside], streams[inside]))
        if not inside.all():
            break
    moments, numbers = zip(*parts, strict=True)
    return np.concatenate(moments), np.concatenate(numbers)


def test_cameras_come_as_they_do_in_a_simulation_of_the_same_seed() -> None:
    given = {"fps": "30", "jitter_ms": "25", "phase": "synchronised"}
    load = make_load("cameras", 7, given, 10)
    found = frames_of(load, 40.0, seed=4)
    wanted = Cameras(7, 30, "synchronised", 25_000_000).all_arrivals(1300, seed=4)
    assert len(found[0]) > 7 * 1190
    for own, simulated in zip(found, wanted, strict=True):
        assert np.array_equal(own, simulated[: len(own)])
    assert isinstance(load, OpenLoop)
    assert np.array_equal(arrivals(load, 40.0, seed=4), found[0])


def test_cameras_carry_their_policy_to_the_engine(tiny: Model, tmp_path: Path) -> None:
    write_payloads(tmp_path, payloads_from(tiny, reference_for(tiny)))

    def target(**given: str) -> Target:
        return streams_of(tmp_path, scenario="cameras", levels=(2,), parameters=given).target()

    late = target(policy="drop-late", deadline_ms="12.5")
    assert (late.policy, late.drop_after_ns) == ("drop-late", 12_500_000)
    counted = target(policy="latest-only", deadline_ms="12.5")
    assert (counted.policy, counted.drop_after_ns) == ("latest-only", None)
    assert target().policy == "fifo"


@pytest.mark.parametrize("chunk", [1, 7, 64])
@pytest.mark.parametrize("streams", [1, 4, 5])
def test_generators_share_streams_whole(streams: int, chunk: int) -> None:
    every = np.arange(1000)
    whose = np.random.default_rng(1).integers(0, streams, 1000, dtype=np.int32)
    chunks = [(every[at : at + chunk], whose[at : at + chunk]) for at in range(0, 1000, chunk)]
    for index in range(2):
        times, numbers = (
            np.concatenate(part) for part in zip(*share_of(chunks, index, 2), strict=True)
        )
        assert times.tolist() == [i for i in every if whose[i] % 2 == index]
        assert (numbers * 2 + index == whose[times]).all()


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
    whose = np.random.default_rng(1).integers(0, 3, 300, dtype=np.int32)
    chunks = [(np.arange(at, at + 20), whose[at : at + 20]) for at in range(0, 300, 20)]
    times, payloads = (np.concatenate(part) for part in zip(*in_order(chunks, 3, 4), strict=True))
    assert times.tolist() == list(range(300))
    streams, steps = np.divmod(payloads, 4)
    assert (streams == whose).all()
    for stream in range(3):
        own = steps[streams == stream]
        assert own.tolist() == [step % 4 for step in range(len(own))]


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
