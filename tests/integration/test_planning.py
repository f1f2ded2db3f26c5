"""A profile of a real server, a plan from it, and a held-out load on that server again."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from loadtest.profiles.file import read_profile
from serving.models.repository import Model

INFERSWEEP = Path(sys.executable).with_name("infersweep")


def infersweep(tiny: Model, *words: str) -> tuple[int, str]:
    done = subprocess.run(
        [str(INFERSWEEP), *words, "--repository", str(tiny.root)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    return done.returncode, " ".join((done.stdout + done.stderr).split())


@pytest.fixture(scope="module")
def profile(tiny: Model, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of a server that joins nothing: a tiny model's batches are too short to be told apart."""
    out = tmp_path_factory.mktemp("profile") / "out"
    status, said = infersweep(
        tiny,
        *("profile", "--model", "tiny", "--backend", "fastapi", "--duration", "0.5"),
        *("--repeats", "1", "--out", str(out)),
    )
    assert status in (0, 8), said
    return out


def plan(tiny: Model, profile: Path, out: Path, *words: str) -> tuple[int, str, dict[str, Any]]:
    status, said = infersweep(tiny, "plan", str(profile), *words, "--out", str(out))
    file = out / "plan.json"
    return status, said, json.loads(file.read_text()) if file.is_file() else {}


def test_a_profile_holds_samples_of_what_was_measured(profile: Path) -> None:
    found = read_profile(profile)
    (repeat,) = found.repeats
    full = next(point for point in found.sweep if point.users == 4)
    (size,) = repeat.service_ns
    mean_ns = sum(repeat.service_ns[size]) / len(repeat.service_ns[size])
    assert size == 1
    assert 1e9 / mean_ns == pytest.approx(full.requests_per_s, rel=0.3)
    assert repeat.start_s is not None
    assert found.energy is None
    assert found.energy_missing


def test_a_plan_is_verified_by_a_load_that_the_profile_has_not_seen(
    tiny: Model, profile: Path, tmp_path: Path
) -> None:
    if read_profile(profile).verdict == "INVALID":
        pytest.skip("the machine was too busy for a profile")
    rate = ("--rate", "60", "--objective", "p90<=400ms", "--survive", "1")
    status, said, found = plan(
        tiny, profile, tmp_path / "plan", *rate, "--verify", "--verify-for", "2"
    )
    assert status == 0, said
    (option,) = found["options"]
    (test,) = found["verifications"]
    assert option["replicas"] >= 2
    left = option["replicas"] - 1
    assert test["rate_rps"] == pytest.approx(60 / left, rel=0.01)
    assert test["predicted_ms"]["low"] <= test["predicted_ms"]["high"]
    assert test["error"] == pytest.approx(test["predicted_ms"]["value"] / test["measured_ms"] - 1)
    assert (tmp_path / "plan" / "plan.html").is_file()


def test_what_cannot_be_planned_is_one_line_with_an_exit_code(
    tiny: Model, profile: Path, tmp_path: Path
) -> None:
    given = json.loads((profile / "profile.json").read_text())
    given |= {"verdict": "VALID", "reasons": [], "servers": None}
    unknown = tmp_path / "unknown.json"
    unknown.write_text(json.dumps(given))
    rate = ("--rate", "100", "--objective", "p90<=400ms")
    status, said, found = plan(tiny, unknown, tmp_path / "a", *rate)
    assert (status, found) == (9, {})
    assert "unknown number of servers" in said
    status, said, _ = plan(tiny, unknown, tmp_path / "b", "--objective", "p90<=400ms")
    assert status == 2
    assert "name one demand" in said
    status, said, _ = plan(tiny, unknown, tmp_path / "c", *rate[2:], "--rate", "-3")
    assert status == 2
    assert "above 0" in said
