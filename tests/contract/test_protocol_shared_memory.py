"""Tensors that stay in system shared memory and travel as a name and a place."""

from __future__ import annotations

import mmap
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import tritonclient.utils.shared_memory as shm

from serving.protocol import Array
from tests.contract.clients import Client
from tests.contract.differences import Outcome

A = np.array([[1, 2, 3]], np.int32)
B = np.array([[10, 20, 30]], np.int32)
TENSOR_BYTES = A.nbytes
PAGE_BYTES = mmap.PAGESIZE
# Both inputs, then room for both outputs; a second page begins with B again.
REGION_BYTES = 2 * PAGE_BYTES
SUM_AT, DIFFERENCE_AT = 2 * TENSOR_BYTES, 3 * TENSOR_BYTES


@dataclass(frozen=True)
class Region:
    """Registered shared memory that begins with ``A`` and ``B``."""

    client: Client
    name: str
    key: str
    handle: Any

    def input(self, name: str, at: int, *, size: int = TENSOR_BYTES, region: str = "") -> Any:
        tensor = self.client.tensor(name, A)
        tensor.set_shared_memory(region or self.name, size, offset=at)
        return tensor

    def output(self, name: str, at: int, *, size: int = TENSOR_BYTES) -> Any:
        wanted = self.client.wanted(name)
        wanted.set_shared_memory(self.name, size, offset=at)
        return wanted

    def infer(self, inputs: Sequence[Any], outputs: Sequence[Any] | None = None) -> Any:
        return self.client.call("infer", "arithmetic", inputs, outputs=outputs, model="arithmetic")

    def outcome(self, inputs: Sequence[Any], outputs: Sequence[Any] | None = None) -> Outcome:
        return self.client.outcome(lambda: self.infer(inputs, outputs))

    def read(self, at: int) -> Array:
        return shm.get_contents_as_numpy(self.handle, np.int32, [1, 3], at)

    @property
    def both(self) -> list[Any]:
        return [self.input("a", 0), self.input("b", TENSOR_BYTES)]


@pytest.fixture
def region(client: Client) -> Iterator[Region]:
    client.served.require("system_shared_memory")
    name = f"infersweep_{uuid.uuid4().hex}"
    handle = shm.create_shared_memory_region(name, f"/{name}", REGION_BYTES)
    shm.set_shared_memory_region(handle, [A, B])
    shm.set_shared_memory_region(handle, [B], offset=PAGE_BYTES)
    client.call("register_system_shared_memory", name, f"/{name}", REGION_BYTES)
    try:
        yield Region(client, name, f"/{name}", handle)
    finally:
        client.call("unregister_system_shared_memory")
        shm.destroy_shared_memory_region(handle)


def test_a_registered_region_is_listed_until_it_is_unregistered(region: Region) -> None:
    client = region.client
    for asked in ("", region.name):
        (found,) = client.regions(asked).values()
        told = (found.name, found.key, found.offset, found.byte_size)
        assert told == (region.name, region.key, 0, REGION_BYTES)
    client.call("unregister_system_shared_memory", region.name)
    assert client.regions() == {}
    assert client.outcome(lambda: client.regions(region.name)) is Outcome.CLIENT_FAULT


def test_inputs_and_outputs_in_one_region(region: Region) -> None:
    outputs = [region.output("sum", SUM_AT), region.output("difference", DIFFERENCE_AT)]
    region.infer(region.both, outputs)
    np.testing.assert_array_equal(region.read(SUM_AT), A + B)
    np.testing.assert_array_equal(region.read(DIFFERENCE_AT), A - B)


def test_shared_memory_beside_data_in_the_body(region: Region) -> None:
    inputs = [region.input("a", 0), region.client.tensor("b", B)]
    outputs = [region.output("sum", SUM_AT), region.client.wanted("difference")]
    result = region.infer(inputs, outputs)
    np.testing.assert_array_equal(region.read(SUM_AT), A + B)
    np.testing.assert_array_equal(result.as_numpy("difference"), A - B)


def test_what_is_written_between_two_requests_is_seen(region: Region) -> None:
    np.testing.assert_array_equal(region.infer(region.both).as_numpy("sum"), A + B)
    shm.set_shared_memory_region(region.handle, [7 * A, B])
    np.testing.assert_array_equal(region.infer(region.both).as_numpy("sum"), 7 * A + B)


def test_a_region_that_begins_inside_its_file(region: Region) -> None:
    client = region.client
    client.call("register_system_shared_memory", "tail", region.key, 100, offset=PAGE_BYTES)
    inputs = [region.input("a", 0, region="tail"), region.input("b", TENSOR_BYTES)]
    np.testing.assert_array_equal(region.infer(inputs).as_numpy("sum"), B + B)


def test_after_unregistration_it_is_the_clients_fault(region: Region) -> None:
    region.client.call("unregister_system_shared_memory", region.name)
    assert region.outcome(region.both) is Outcome.CLIENT_FAULT
    tensors = [region.client.tensor("a", A), region.client.tensor("b", B)]
    assert region.outcome(tensors, [region.output("sum", SUM_AT)]) is Outcome.CLIENT_FAULT
    assert region.outcome(tensors) is Outcome.OK


def test_a_tensor_outside_its_region_is_the_clients_fault(region: Region) -> None:
    b = region.input("b", TENSOR_BYTES)
    for wrong in (
        region.input("a", REGION_BYTES - 4),
        region.input("a", REGION_BYTES),
        region.input("a", 0, size=TENSOR_BYTES - 4),
        region.input("a", 0, size=TENSOR_BYTES + 4),
        region.input("a", 0, region="another"),
    ):
        assert region.outcome([wrong, b]) is Outcome.CLIENT_FAULT
    beyond = [region.output("sum", REGION_BYTES - 4)]
    assert region.outcome(region.both, beyond) is Outcome.CLIENT_FAULT
    small = [region.output("sum", SUM_AT, size=TENSOR_BYTES - 4)]
    expected = region.client.served.expected("output larger than its region")
    assert region.outcome(region.both, small) is expected
    np.testing.assert_array_equal(region.infer(region.both).as_numpy("sum"), A + B)


@pytest.mark.parametrize(
    ("case", "key", "size", "offset"),
    [
        ("region beyond its file", "", 1 << 20, 0),
        ("region beyond its file", "", REGION_BYTES, 1 << 20),
        ("region without a file", "/infersweep_nothing", REGION_BYTES, 0),
        ("region without a file", "/../../etc/hostname", 1, 0),
    ],
)
def test_a_region_that_is_not_there_is_not_registered(
    region: Region, case: str, key: str, size: int, offset: int
) -> None:
    client = region.client

    def register() -> None:
        client.call(
            "register_system_shared_memory", "other", key or region.key, size, offset=offset
        )

    assert client.outcome(register) is client.served.expected(case)
    assert set(client.regions()) == {region.name}


def test_a_name_is_registered_once(region: Region) -> None:
    client = region.client

    def register() -> None:
        client.call("register_system_shared_memory", region.name, region.key, TENSOR_BYTES)

    assert client.outcome(register) is Outcome.CLIENT_FAULT
    assert client.regions()[region.name].byte_size == REGION_BYTES


def test_unregistering_what_is_not_registered(region: Region) -> None:
    client = region.client
    outcome = client.outcome(lambda: client.call("unregister_system_shared_memory", "other"))
    assert outcome is client.served.expected("unregister of an unknown region")
