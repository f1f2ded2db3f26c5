"""Experiments on real servers and real processes, of a model that is tiny."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
import pytest

from loadtest.playbook.called import Called, Calls, Job
from loadtest.playbook.engines import session_calls
from loadtest.playbook.experiment import Experiment, Lab, Pace
from loadtest.playbook.loader import loader
from loadtest.playbook.run import run
from loadtest.playbook.served import Served
from serving.models.repository import Model
from serving.protocol import Array
from tests.unit.test_playbook_run import Quiet

SHORT = Pace(starts=1, windows=3, window_s=0.1)


@pytest.fixture
def lab(tiny: Model, tmp_path: Path) -> Iterator[Lab]:
    with loader((1,), tmp_path / "loader.log") as load:
        yield Lab(tiny, tmp_path / "experiment", tmp_path, (0,), (1,), 2, SHORT, Quiet(), load)


def experiment(*arms: Called | Served) -> Experiment:
    return Experiment("made", "Made", "It helps.", (1.5, 2.0), "playbook.md", lambda _lab: arms)


def right(job: Job) -> Calls:
    return session_calls(job)


def wrong(job: Job) -> Calls:
    calls = session_calls(job)
    assert calls.answer is not None
    answer = calls.answer

    def shifted(inputs: Mapping[str, Array]) -> Mapping[str, Array]:
        return {name: array + np.float32(0.1) for name, array in answer(inputs).items()}

    return Calls(calls.call, shifted)


def broken(_job: Job) -> Calls:
    raise ZeroDivisionError("nothing to divide by")


def test_functions_are_timed_in_processes_of_their_own_and_answers_are_compared(lab: Lab) -> None:
    record = run(experiment(Called("one", "", right), Called("other", "", wrong)), lab)
    one, other = record.arms
    assert one.answers is not None
    assert one.answers.right
    assert other.answers is not None
    assert other.answers.largest_difference == pytest.approx(0.1, rel=1e-3)
    assert record.verdict == "breaks accuracy"
    assert all(window.count >= 3 for arm in record.arms for window in arm.windows)
    assert all(arm.start_s[0] > 0 and (arm.rss_bytes or 0) > 10e6 for arm in record.arms)


def test_a_function_that_cannot_be_built_fails_its_experiment_alone(lab: Lab) -> None:
    record = run(experiment(Called("one", "", right), Called("other", "", broken)), lab)
    assert (record.verdict, record.failed) == ("cannot be measured here", True)
    assert "nothing to divide by" in record.missing


def test_servers_are_loaded_in_turns_and_their_answers_checked(lab: Lab) -> None:
    arms = (
        Served("json", "", load={"encoding": "json"}, users=2),
        Served("binary", "", users=2),
    )
    record = run(experiment(*arms), lab)
    assert record.failed is False
    for arm in record.arms:
        assert len(arm.windows) == 3
        assert all(window.inferences_per_s > 0 for window in arm.windows)
        assert arm.answers is not None
        assert arm.answers.right
        assert arm.rss_bytes
        assert arm.facts["provider"] == "CPUExecutionProvider"
    effect = record.effect
    assert effect is not None
    assert effect.repeats in (0, 3)
