"""What a server counts: requests, rows, batches and where their time went."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pytest

from tests.contract.clients import Client
from tests.contract.differences import Outcome

PHASES = ("queue", "compute_input", "compute_infer", "compute_output")
A = np.zeros((3, 3), np.int32)


@pytest.fixture
def counting(client: Client) -> Client:
    client.served.require("statistics")
    # What is not loaded yet has no statistics.
    client.infer("arithmetic", {"a": A, "b": A})
    return client


def counts(client: Client) -> Any:
    """As soon as they no longer change: Triton counts a request after it has answered it."""
    before = None
    for _ in range(100):
        (found,) = client.statistics("arithmetic", "1")
        assert (found.name, found.version) == ("arithmetic", "1")
        if found == before:
            return found
        before = found
        time.sleep(0.02)
    pytest.fail("the counts never came to rest")


def executions_by_size(found: Any) -> dict[int, int]:
    return {entry.batch_size: entry.compute_infer.count for entry in found.batch_stats}


def test_requests_rows_and_executions_grow_by_what_was_sent(counting: Client) -> None:
    before = counts(counting)
    for rows in (1, 3, 3):
        counting.infer("arithmetic", {"a": A[:rows], "b": A[:rows]})
    after = counts(counting)
    assert after.inference_count - before.inference_count == 7
    assert after.execution_count - before.execution_count == 3
    assert after.inference_stats.success.count - before.inference_stats.success.count == 3
    assert after.last_inference >= before.last_inference > 1_600_000_000_000
    for size, more in {1: 1, 3: 2}.items():
        was, now = (executions_by_size(found).get(size, 0) for found in (before, after))
        assert now - was == more, f"batches of {size}"


def test_every_phase_of_every_request_is_timed(counting: Client) -> None:
    before = counts(counting).inference_stats
    for _ in range(5):
        counting.infer("arithmetic", {"a": A, "b": A})
    after = counts(counting).inference_stats
    spent_ns = {}
    for phase in (*PHASES, "success"):
        was, now = getattr(before, phase), getattr(after, phase)
        assert now.count - was.count == 5, phase
        spent_ns[phase] = now.ns - was.ns
    assert spent_ns["compute_infer"] > 0
    assert spent_ns["queue"] > 0
    assert sum(spent_ns[phase] for phase in PHASES) <= spent_ns["success"]


def test_a_clients_fault_is_no_success(counting: Client) -> None:
    before = counts(counting)
    fault = counting.outcome(lambda: counting.infer("arithmetic", {"a": A}))
    after = counts(counting)
    assert fault is Outcome.CLIENT_FAULT
    assert after.inference_count == before.inference_count
    assert after.inference_stats.success == before.inference_stats.success


def test_all_loaded_models_are_listed_when_none_is_named(counting: Client) -> None:
    found = counting.statistics()
    assert {"tiny", "arithmetic"} <= {entry.name for entry in found}
    assert len({(entry.name, entry.version) for entry in found}) == len(found)


@pytest.mark.parametrize(("model", "version"), [("nobody", ""), ("arithmetic", "2")])
def test_statistics_of_the_unknown(counting: Client, model: str, version: str) -> None:
    ask = counting.outcome(lambda: counting.statistics(model, version))
    assert ask is Outcome.CLIENT_FAULT
