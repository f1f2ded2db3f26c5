"""Profiles as files, and the scheduler's rules in them: what is refused, and in which words."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from loadtest.plan.server import Server
from loadtest.profiles.file import (
    NAME,
    read_profile,
    require_plannable,
    require_same_model,
    write_profile,
)
from loadtest.profiles.record import PROFILE_VERSION
from loadtest.profiles.scheduling import scheduled, scheduling_of
from serving.errors import InfersweepError, ModelError, ResultsError
from serving.models.scheduling import QueuePolicy
from tests import sample_profile as made


def refused(path: Path) -> str:
    with pytest.raises(ResultsError) as told:
        read_profile(path)
    assert told.value.exit_code == 9
    assert "\n" not in str(told.value)
    return str(told.value)


def changed(path: Path, **changes: Any) -> Path:
    """A profile's file with other content."""
    content = made.profile().model_dump(mode="json") | changes
    path.write_text(json.dumps(content))
    return path


def test_a_profile_survives_its_file_and_is_found_in_its_folder(tmp_path: Path) -> None:
    profile = made.profile(
        {1: made.constant_ns(10 * made.MS), 4: made.exponential_ns(20 * made.MS, 50)},
        energy=made.power(),
        reasons=("none",),
    )
    path = tmp_path / "new" / NAME
    write_profile(profile, path)
    assert read_profile(path) == profile
    assert read_profile(path.parent) == profile
    assert [file.name for file in path.parent.iterdir()] == [NAME]


def test_what_is_no_profile_is_refused_in_one_line(tmp_path: Path) -> None:
    assert "cannot be read" in refused(tmp_path / "nowhere.json")
    assert "cannot be read" in refused(tmp_path)
    half = tmp_path / "half.json"
    half.write_text(made.profile().model_dump_json()[:500])
    assert "cannot be read" in refused(half)
    half.write_bytes(b"\xff\xfe")
    assert "cannot be read" in refused(half)
    half.write_text("[1, 2]")
    assert "is no profile: the file" in refused(half)
    assert "is no profile: surprise" in refused(changed(half, surprise=1))
    assert "is no profile: repeats" in refused(changed(half, repeats="many"))
    assert "without samples or no repeat" in refused(changed(half, repeats=[]))


def test_a_profile_of_a_newer_infersweep_asks_for_an_update(tmp_path: Path) -> None:
    text = refused(changed(tmp_path / NAME, profile_version=PROFILE_VERSION + 1, surprise=1))
    assert f"version {PROFILE_VERSION + 1}" in text
    assert text.endswith("Update infersweep.")


@pytest.mark.parametrize(
    "changes",
    [
        {"configuration": "max_batch_size: many"},
        {"repeats": [{"service_ns": {}, "alone_ns": [1], "start_s": None, "rss_bytes": None}]},
        {"repeats": [{"service_ns": {"1": [5]}, "alone_ns": [], "start_s": 1, "rss_bytes": 1}]},
        {"repeats": [{"service_ns": {"1": [-5]}, "alone_ns": [5], "start_s": 1, "rss_bytes": 1}]},
        {"repeats": [{"service_ns": {"0": [5]}, "alone_ns": [5], "start_s": 1, "rss_bytes": 1}]},
    ],
)
def test_a_profile_that_was_tampered_with_is_an_error_of_ours(
    tmp_path: Path, changes: dict[str, Any]
) -> None:
    path = changed(tmp_path / NAME, **changes)
    with pytest.raises(InfersweepError):
        Server.of(read_profile(path))


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"verdict": "INVALID", "reasons": ("too few", "too slow")}, "INVALID: too few; too slow"),
        ({"servers": None}, "unknown number of servers"),
        ({"servers": 3}, "3 servers together"),
    ],
)
def test_no_plan_rests_on_a_profile_of_no_single_server(changes: Any, told: str) -> None:
    with pytest.raises(ResultsError) as error:
        require_plannable(made.profile(**changes), Path("a/profile.json"))
    assert told in str(error.value)
    assert "a/profile.json" in str(error.value)
    assert "\n" not in str(error.value)
    assert error.value.exit_code == 9
    require_plannable(made.profile(), Path("a/profile.json"))


def test_profiles_of_two_model_files_are_not_put_side_by_side() -> None:
    one, two = (Path("a"), made.profile()), (Path("b"), made.profile(model_sha256="cd" * 32))
    require_same_model([one, one], made.SHA256)
    with pytest.raises(ResultsError, match="profiles a and b are of different model files") as told:
        require_same_model([one, two])
    assert told.value.exit_code == 9
    assert "\n" not in str(told.value)
    with pytest.raises(ResultsError, match="another version of model 'made_up'"):
        require_same_model([one], "cd" * 32)


def test_the_rules_are_those_of_the_served_configuration() -> None:
    text = made.configuration(
        largest=8,
        delay_us=500,
        preferred=(8, 4),
        queue="max_queue_size: 64 default_timeout_microseconds: 20000 timeout_action: DELAY",
    )
    found = scheduling_of("onnxruntime", text)
    assert (found.largest, found.instances, found.delay_ns) == (8, 1, 500_000)
    assert found.preferred == (4, 8)
    assert found.queue == QueuePolicy(max_size=64, timeout_ns=20_000_000, reject=False)
    assert found.unplannable == ""


def test_no_batch_is_larger_than_the_largest_preferred_size() -> None:
    """It leaves with that size as soon as so many wait, whatever more there could be."""
    found = scheduling_of("triton", made.configuration(largest=16, preferred=(2, 4)))
    assert found.largest == 4
    assert found.unplannable == ""


@pytest.mark.parametrize("label", ["onnxruntime", "triton", "fastapi", "remote:http://host:8000"])
def test_without_a_batcher_each_request_is_served_alone(label: str) -> None:
    found = scheduling_of(label, made.configuration(largest=8, batching=False))
    assert (found.largest, found.delay_ns, found.unplannable) == (1, 0, "")


def test_a_server_that_cannot_join_serves_each_alone_whatever_its_configuration_says() -> None:
    assert scheduling_of("fastapi", made.configuration(largest=8, delay_us=100)).largest == 1


@pytest.mark.parametrize(
    ("label", "largest", "plannable"),
    [
        ("fastapi", 1, False),
        ("fastapi", 8, False),
        ("onnxruntime", 1, True),
        ("onnxruntime", 8, False),
        ("triton", 8, False),
    ],
)
def test_several_instances_need_one_queue_and_no_batches(
    label: str, largest: int, plannable: bool
) -> None:
    """Workers of their own queue cannot be simulated as one, and batches cannot be told apart."""
    found = scheduling_of(label, made.configuration(largest=largest, instances=2))
    assert found.instances == 2
    assert (found.unplannable == "") == plannable


def test_a_batcher_that_joins_nothing_may_have_several_instances() -> None:
    text = made.configuration(largest=1, instances=2, batching=True, queue="max_queue_size: 9")
    found = scheduling_of("onnxruntime", text)
    assert (found.largest, found.instances, found.queue.max_size) == (1, 2, 9)
    assert found.unplannable == ""


def test_the_queue_of_a_pipeline_is_that_of_the_model_behind_it() -> None:
    steps = 'step [ { model_name: "decode" model_version: -1 }, { model_name: "net" } ]'
    assert scheduled(f"ensemble_scheduling {{ {steps} }}", "whole") == "net"
    assert scheduled(made.configuration(), "made_up") == "made_up"


def test_a_configuration_that_cannot_be_read_is_an_error_of_the_model() -> None:
    with pytest.raises(ModelError, match="is no config") as told:
        scheduling_of("onnxruntime", "max_batch_size: many")
    assert told.value.exit_code == 5
    assert "\n" not in str(told.value)
