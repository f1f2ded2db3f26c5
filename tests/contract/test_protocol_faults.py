"""Malformed requests over HTTP: the client's own fault, explained, and nobody else's loss."""

from __future__ import annotations

import pytest

from tests.contract.differences import Outcome
from tests.contract.faults import FAULTS, HEADER_LENGTH, A, B, Fault, binary_request, body_of
from tests.contract.served import Reply, Served


def expect_sum(reply: Reply) -> None:
    assert reply.outcome is Outcome.OK, reply.body
    outputs = {output["name"]: output["data"] for output in reply.json["outputs"]}
    assert outputs == {"sum": [2, 4, 6], "difference": [0, 0, 0]}


def test_the_request_that_the_faults_are_made_from_is_right(served: Served) -> None:
    for reply in served.post("arithmetic", binary_request(), (body_of(A, B), {})):
        expect_sum(reply)


def test_a_header_length_that_is_no_number_does_not_make_all_of_it_data(served: Served) -> None:
    """With one input of free length, every byte of the body could be taken for its values."""
    x = {"name": "x", "datatype": "FP32", "shape": [4], "parameters": {"binary_data_size": 16}}
    head = body_of(x)
    body = head + bytes(-len(head) % 4) + bytes(16)
    (reply,) = served.post("echo", (body, {HEADER_LENGTH: "abc"}))
    assert reply.outcome is served.expected("header length taken for zero")


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_the_outcome_is_right_and_so_is_the_next_answer(served: Served, fault: Fault) -> None:
    bad, good = served.post("arithmetic", (fault.body, fault.headers), (body_of(A, B), {}))
    assert bad.outcome is served.expected(fault.name), bad.body
    expect_sum(good)


def test_each_refusal_says_what_was_expected_and_what_came(served: Served) -> None:
    served.require("faults are explained")
    refusals = served.post("arithmetic", *((fault.body, fault.headers) for fault in FAULTS))
    told = {fault.name: reply.json["error"] for fault, reply in zip(FAULTS, refusals, strict=True)}
    unsaid = {
        fault.name: told[fault.name]
        for fault in FAULTS
        if any(word not in told[fault.name] for word in fault.words)
    }
    assert unsaid == {}
