"""What clients of the playbook's experiments do before they send."""

from __future__ import annotations

import gzip
from dataclasses import replace

import numpy as np

from loadtest.playbook.clients import Client
from loadtest.playbook.picturing import client_step
from serving.protocol import HEADER_LENGTH, decode_request
from tests.sample_pictures import FRONT, jpeg, noise, rows

URL = "http://127.0.0.1:1"
INPUTS = {"x": np.zeros((1, 500), np.float32)}


def test_a_body_holds_the_inputs_as_binary_data() -> None:
    body, headers = Client(URL, "m").encode(INPUTS)
    (tensor,) = decode_request(body, int(headers[HEADER_LENGTH])).inputs
    assert tensor.name == "x"
    assert np.array_equal(tensor.array, INPUTS["x"])


def test_a_packed_body_is_that_which_is_sent_unpacked_and_says_so() -> None:
    plain, plain_headers = Client(URL, "m").encode(INPUTS)
    packed, headers = Client(URL, "m", gzip_level=6).encode(INPUTS)
    assert gzip.decompress(packed) == plain
    assert headers == {**plain_headers, "Content-Encoding": "gzip"}
    assert len(packed) < len(plain)


def test_only_a_client_that_keeps_no_connection_asks_for_its_end() -> None:
    assert "Connection" not in Client(URL, "m").encode(INPUTS)[1]
    assert Client(URL, "m", keeps=False).encode(INPUTS)[1]["Connection"] == "close"


def test_whatever_a_client_sends_of_a_jpeg_becomes_the_same_tensor() -> None:
    row = rows(jpeg(noise(height=90, width=70)))
    tensor = FRONT.run(row)
    pixels = client_step(FRONT, "uint8")(row)
    assert pixels.dtype == np.uint8
    assert np.array_equal(replace(FRONT, payload="uint8").run(pixels), tensor)
    assert np.array_equal(client_step(FRONT, "float32")(row), tensor)
    assert client_step(FRONT, "jpeg")(row) is row
