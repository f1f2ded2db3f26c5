"""Compressed bodies, asked for as NVIDIA's clients ask."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from tests.contract.clients import Client

ALGORITHMS = (None, "gzip", "deflate")
A = np.arange(24, dtype=np.int32).reshape(8, 3)


@pytest.mark.parametrize("client", ["http", "http.aio"], indirect=True)
@pytest.mark.parametrize(("there", "back"), [*itertools.product(ALGORITHMS, ALGORITHMS)])
@pytest.mark.parametrize("binary", [True, False], ids=["binary", "json"])
def test_http_bodies(client: Client, there: str | None, back: str | None, binary: bool) -> None:
    answer = client.infer(
        "arithmetic",
        {"a": A, "b": A},
        outputs=["sum", "difference"],
        json_inputs=[] if binary else ["a", "b"],
        json_outputs=[] if binary else ["difference"],
        request_compression_algorithm=there,
        response_compression_algorithm=back,
    )
    np.testing.assert_array_equal(answer.outputs["sum"], A + A)
    np.testing.assert_array_equal(answer.outputs["difference"], A - A)


@pytest.mark.parametrize("client", ["grpc", "grpc.aio"], indirect=True)
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_grpc_messages(client: Client, algorithm: str | None) -> None:
    if algorithm == "deflate":
        client.served.require("deflate over gRPC")
    answer = client.infer("arithmetic", {"a": A, "b": A}, compression_algorithm=algorithm)
    np.testing.assert_array_equal(answer.outputs["sum"], A + A)
