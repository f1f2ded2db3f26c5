"""Malformed requests over HTTP: the client's own fault, explained, and nobody else's loss."""

from __future__ import annotations

import pytest

from tests.contract.differences import Outcome
from tests.contract.faults import FAULTS, A, B, Fault, binary_request, body_of
from tests.contract.served import Reply, Served

FAULTS_BY_NAME = [pytest.param(fault, id=fault.name) for fault in FAULTS]


def expect_sum(reply: Reply) -> None:
    assert reply.outcome is Outcome.OK, reply.body
    outputs = {output["name"]: output["data"] for output in reply.json["outputs"]}
    assert outputs == {"sum": [2, 4, 6], "difference": [0, 0, 0]}


def test_the_request_that_the_faults_are_made_from_is_right(served: Served) -> None:
    for reply in served.post("arithmetic", binary_request(), (body_of(A, B), {})):
        expect_sum(reply)


@pytest.mark.parametrize("fault", FAULTS_BY_NAME)
def test_the_outcome_is_right_and_so_is_the_next_answer(served: Served, fault: Fault) -> None:
    bad, good = served.post("arithmetic", (fault.body, fault.headers), (body_of(A, B), {}))
    assert bad.outcome is served.expected(fault.name), bad.body
    expect_sum(good)


@pytest.mark.parametrize("fault", FAULTS_BY_NAME)
def test_the_refusal_says_what_was_expected_and_what_came(served: Served, fault: Fault) -> None:
    served.require("faults are explained")
    (refusal,) = served.post("arithmetic", (fault.body, fault.headers))
    told = refusal.json["error"]
    assert [word for word in fault.words if word not in told] == [], told
