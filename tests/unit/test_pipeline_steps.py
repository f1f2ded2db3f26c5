"""A pipeline on the event loop of our server: what each step is asked, and what it is not."""

from __future__ import annotations

import asyncio

import pytest

from serving.backends.onnxruntime.catalogue import Catalogue
from serving.backends.onnxruntime.faults import UnknownModelError
from serving.backends.onnxruntime.settings import Limits
from serving.batching import CancelledError, Outcome, Pending, RefusedError
from serving.models.repository import Model
from serving.protocol import ProtocolError
from tests.sample_pictures import jpeg, noise, rows, write_pipeline

SLO_NS = 50_000_000
NAME, FRONT, BEHIND = "colours_jpeg", "colours_front_jpeg", "colours"


class Asked(Pending):
    """A request whose outcome can be awaited."""

    def __init__(self, file: bytes) -> None:
        super().__init__({"picture": rows(file)}, 1, (("picture", (1,)),))
        self.answer: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()

    def done(self, outcome: Outcome) -> None:
        self.answer.set_result(outcome)


@pytest.fixture(scope="module")
def pipeline(tmp_path_factory: pytest.TempPathFactory) -> Model:
    return write_pipeline(tmp_path_factory.mktemp("pipeline"), "jpeg")


async def opened(pipeline: Model) -> Catalogue:
    catalogue = Catalogue(pipeline.root, Limits(), SLO_NS)
    await catalogue.load(NAME)
    return catalogue


def counted(catalogue: Catalogue) -> dict[str, int]:
    """Requests that each of the three models has answered."""
    names = (NAME, FRONT, BEHIND)
    return {name: catalogue.find(name, "").statistics.total.count for name in names}


def test_both_steps_are_loaded_and_count_for_themselves(pipeline: Model) -> None:
    async def run() -> None:
        catalogue = await opened(pipeline)
        request = Asked(jpeg(noise()))
        catalogue.find(NAME, "").submit(request)
        assert isinstance(await request.answer, dict)
        assert counted(catalogue) == {NAME: 1, FRONT: 1, BEHIND: 1}
        whole, *parts = (
            catalogue.find(name, "").statistics.total.total_ns for name in (NAME, FRONT, BEHIND)
        )
        assert whole > max(parts)
        told = {name: catalogue.find(name, "").statistics.slo_ns for name in (NAME, FRONT, BEHIND)}
        assert told == {NAME: SLO_NS, FRONT: None, BEHIND: None}
        await catalogue.close()

    asyncio.run(run())


def test_a_broken_picture_never_reaches_the_model(pipeline: Model) -> None:
    async def run() -> None:
        catalogue = await opened(pipeline)
        request = Asked(b"no picture")
        catalogue.find(NAME, "").submit(request)
        assert isinstance(await request.answer, ProtocolError)
        assert counted(catalogue) == {NAME: 0, FRONT: 0, BEHIND: 0}
        assert catalogue.find(NAME, "").statistics.failed.count == 1
        await catalogue.close()

    asyncio.run(run())


@pytest.mark.parametrize("turns", [0, 1], ids=["while it waits", "while it is decoded"])
def test_nothing_more_is_computed_for_a_client_that_has_gone(pipeline: Model, turns: int) -> None:
    async def run() -> None:
        catalogue = await opened(pipeline)
        request = Asked(jpeg(noise(1080, 1920)))
        served = catalogue.find(NAME, "")
        served.submit(request)
        for _ in range(turns):
            await asyncio.sleep(0)
        served.cancel(request)
        assert isinstance(await request.answer, CancelledError)
        assert counted(catalogue) == {NAME: 0, FRONT: turns, BEHIND: 0}
        await catalogue.close()

    asyncio.run(run())


def test_a_step_that_was_unloaded_is_told(pipeline: Model) -> None:
    async def run() -> None:
        catalogue = await opened(pipeline)
        served = catalogue.find(NAME, "")
        await catalogue.unload(BEHIND)
        request = Asked(jpeg(noise()))
        served.submit(request)
        assert isinstance(await request.answer, UnknownModelError)
        await catalogue.unload(FRONT)
        with pytest.raises(UnknownModelError, match=FRONT):
            served.submit(Asked(jpeg(noise())))
        await catalogue.load(NAME)
        assert catalogue.find(BEHIND, "").name == BEHIND
        await catalogue.close()

    asyncio.run(run())


def test_what_is_under_way_is_finished_before_a_pipeline_is_closed(pipeline: Model) -> None:
    async def run() -> None:
        catalogue = await opened(pipeline)
        served, request = catalogue.find(NAME, ""), Asked(jpeg(noise()))
        served.submit(request)
        await catalogue.unload(NAME)
        assert isinstance(request.answer.result(), dict)
        with pytest.raises(RefusedError, match="being unloaded"):
            served.submit(Asked(jpeg(noise())))
        await catalogue.close()

    asyncio.run(run())
