"""Tensors that stay in system shared memory and travel as a name and a place."""

from __future__ import annotations

import mmap
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
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
SUM_AT, DIFFERENCE_AT = 2 * TENSOR_BYTES, 3 * TENSOR_BYTES
PAGE_BYTES = mmap.PAGESIZE
REGION_BYTES = 2 * PAGE_BYTES


@dataclass(frozen=True)
class Memory:
    """Shared memory of two pages. Its first page begins with ``A`` and ``B``, its second with
    ``B`` and ``A``; behind each pair is room for both outputs.
    """

    key: str
    handle: Any

    def read(self, at: int) -> Array:
        return shm.get_contents_as_numpy(self.handle, np.int32, [1, 3], at)


@contextmanager
def memory() -> Iterator[Memory]:
    name = f"infersweep_{uuid.uuid4().hex}"
    handle = shm.create_shared_memory_region(name, f"/{name}", REGION_BYTES)
    shm.set_shared_memory_region(handle, [A, B])
    shm.set_shared_memory_region(handle, [B, A], offset=PAGE_BYTES)
    try:
        yield Memory(f"/{name}", handle)
    finally:
        shm.destroy_shared_memory_region(handle)


@dataclass(frozen=True)
class Region:
    """Memory that is registered as ``region``, and the client that speaks of it."""

    client: Client
    memory: Memory

    def input(self, name: str, at: int, *, size: int = TENSOR_BYTES, region: str = "region") -> Any:
        tensor = self.client.tensor(name, A)
        tensor.set_shared_memory(region, size, offset=at)
        return tensor

    def output(self, name: str, at: int, *, size: int = TENSOR_BYTES) -> Any:
        wanted = self.client.wanted(name)
        wanted.set_shared_memory("region", size, offset=at)
        return wanted

    @property
    def both(self) -> list[Any]:
        return [self.input("a", 0), self.input("b", TENSOR_BYTES)]

    def infer(self, inputs: Sequence[Any], outputs: Sequence[Any] | None = None) -> Any:
        return self.client.call("infer", "arithmetic", inputs, outputs=outputs, model="arithmetic")

    def outcome(self, inputs: Sequence[Any], outputs: Sequence[Any] | None = None) -> Outcome:
        return self.client.outcome(lambda: self.infer(inputs, outputs))

    def register(self, name: str, key: str, size: int = REGION_BYTES, offset: int = 0) -> Outcome:
        call = "register_system_shared_memory"
        return self.client.outcome(lambda: self.client.call(call, name, key, size, offset=offset))


@pytest.fixture
def region(client: Client) -> Iterator[Region]:
    client.served.require("system_shared_memory")
    with memory() as shared:
        found = Region(client, shared)
        assert found.register("region", shared.key) is Outcome.OK
        yield found
        client.call("unregister_system_shared_memory")


def test_a_registered_region_is_listed_until_it_is_unregistered(region: Region) -> None:
    client = region.client
    for asked in ("", "region"):
        (found,) = client.regions(asked).values()
        told = (found.name, found.key, found.offset, found.byte_size)
        assert told == ("region", region.memory.key, 0, REGION_BYTES)
    client.call("unregister_system_shared_memory", "region")
    assert client.regions() == {}
    assert client.outcome(lambda: client.regions("region")) is Outcome.CLIENT_FAULT


def test_inputs_and_outputs_in_one_region(region: Region) -> None:
    region.infer(
        region.both, [region.output("sum", SUM_AT), region.output("difference", DIFFERENCE_AT)]
    )
    np.testing.assert_array_equal(region.memory.read(SUM_AT), A + B)
    np.testing.assert_array_equal(region.memory.read(DIFFERENCE_AT), A - B)


def test_shared_memory_beside_data_in_the_body(region: Region) -> None:
    inputs = [region.input("a", 0), region.client.tensor("b", B)]
    outputs = [region.output("sum", SUM_AT), region.client.wanted("difference")]
    result = region.infer(inputs, outputs)
    np.testing.assert_array_equal(region.memory.read(SUM_AT), A + B)
    np.testing.assert_array_equal(result.as_numpy("difference"), A - B)


def test_what_is_written_between_two_requests_is_seen(region: Region) -> None:
    np.testing.assert_array_equal(region.infer(region.both).as_numpy("sum"), A + B)
    shm.set_shared_memory_region(region.memory.handle, [7 * A, B])
    np.testing.assert_array_equal(region.infer(region.both).as_numpy("sum"), 7 * A + B)


def test_a_region_that_begins_inside_its_memory(region: Region) -> None:
    region.client.served.require("a region inside its memory")
    with memory() as other:
        assert region.register("tail", other.key, PAGE_BYTES, PAGE_BYTES) is Outcome.OK
        assert region.client.regions()["tail"].offset == PAGE_BYTES
        inputs = [region.input("a", 0, region="tail"), region.input("b", 0)]
        np.testing.assert_array_equal(region.infer(inputs).as_numpy("sum"), B + A)


def test_two_regions_of_one_memory(region: Region) -> None:
    region.client.served.require("two regions of one memory")
    assert region.register("same", region.memory.key) is Outcome.OK
    inputs = [region.input("a", 0), region.input("b", PAGE_BYTES, region="same")]
    np.testing.assert_array_equal(region.infer(inputs).as_numpy("sum"), A + B)


def test_after_unregistration_it_is_the_clients_fault(region: Region) -> None:
    region.client.call("unregister_system_shared_memory", "region")
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
    ("size", "offset"),
    [
        (REGION_BYTES + 1, 0),
        (1 << 40, 0),
        (PAGE_BYTES + 1, PAGE_BYTES),
        (REGION_BYTES, 1 << 40),
    ],
)
def test_a_region_beyond_its_memory_is_not_registered(
    region: Region, size: int, offset: int
) -> None:
    with memory() as other:
        assert region.register("other", other.key, size, offset) is Outcome.CLIENT_FAULT
    assert set(region.client.regions()) == {"region"}


@pytest.mark.parametrize("key", ["/infersweep_nothing", "/../../etc/hostname", ""])
def test_a_region_of_no_memory_is_not_registered(region: Region, key: str) -> None:
    expected = region.client.served.expected("region without memory")
    assert region.register("other", key, 1) is expected
    assert set(region.client.regions()) == {"region"}


def test_a_name_is_registered_once(region: Region) -> None:
    with memory() as other:
        assert region.register("region", other.key) is Outcome.CLIENT_FAULT
    assert region.client.regions()["region"].key == region.memory.key


def test_unregistering_what_is_not_registered_changes_nothing(region: Region) -> None:
    region.client.call("unregister_system_shared_memory", "other")
    assert set(region.client.regions()) == {"region"}
