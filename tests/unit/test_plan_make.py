"""A plan from its options: which is taken, and the sentence that says so."""

from __future__ import annotations

import math
from typing import Any

import pytest

from loadtest.camera_schedule import Cameras
from loadtest.links.profile import NAMED, LinkProfile
from loadtest.objective import Percentile
from loadtest.plan.demand import CameraDemand, Rate
from loadtest.plan.make import cheapest, plan_of, sentence_of
from loadtest.plan.question import Question
from loadtest.plan.record import Plan
from loadtest.plan.wording import chosen_of
from tests import sample_plan as made

OBJECTIVE = Percentile("p99", 0.99, 150_000_000)


def question(**changes: Any) -> Question:
    given = {"demand": Rate(240.0), "objective": OBJECTIVE, "survive": 1}
    return Question(**(given | changes))


def plan(asked: Question, *options: Any, **changes: Any) -> Plan:
    given = {"model": "m", "window_s": 60.0, "created": "2026-05-01T12:00:00+00:00"}
    return plan_of(asked, options, **(given | {"command": "infersweep plan"} | changes))


def test_without_prices_the_fewest_replicas_are_the_cheapest() -> None:
    few = made.triton(replicas=3, cost_per_million=None)
    many = made.onnxruntime(replicas=4, cost_per_million=None)
    assert cheapest((many, few)) is few


def test_with_prices_the_price_counts_and_not_the_number() -> None:
    dear = made.triton(replicas=3, cost_per_million=0.9)
    cheap = made.onnxruntime(replicas=4, cost_per_million=0.8)
    assert cheapest((dear, cheap)) is cheap


def test_of_equally_cheap_options_the_quickest_is_taken() -> None:
    quick = made.triton(replicas=4, cost_per_million=None, response_ms=made.around(20.0))
    slow = made.onnxruntime(replicas=4, cost_per_million=None, response_ms=made.around(21.0))
    assert cheapest((slow, quick)) is quick
    unknown = made.onnxruntime(replicas=4, cost_per_million=None, response_ms=None)
    assert cheapest((unknown, slow)) is slow


def test_an_option_without_a_number_is_never_the_cheapest() -> None:
    assert cheapest((made.fastapi(), made.triton())) == made.triton()
    assert cheapest((made.fastapi(),)) is None
    assert cheapest(()) is None


def test_the_chosen_option_is_named_by_its_profile() -> None:
    """K2: of 1, 2 and 4 processes the plan takes what was measured best, and multiplies nothing."""
    need_rps, measured = 8000.0, {1: 2162.0, 2: 4061.0, 4: 3135.0}
    options = [
        made.onnxruntime(
            profile=f"profiles/{count}.json",
            usable_rps=rps,
            replicas=math.ceil(need_rps / rps),
            cost_per_million=None,
        )
        for count, rps in measured.items()
    ]
    found = plan(question(demand=Rate(need_rps)), *options)
    assert found.chosen == "profiles/2.json"
    assert chosen_of(found) == options[1]
    assert found.sentence.startswith("2 replicas of onnxruntime for 8,000 requests/s")


def test_the_sentence_tells_the_answer_with_its_uncertainty() -> None:
    seen = made.Range(value=87.25, low=81.0, high=95.5)
    option = made.onnxruntime(response_ms=seen, frames=None)
    sentence = sentence_of(question(), (option,), option)
    assert sentence == (
        "4 replicas of onnxruntime for 240 requests/s, Poisson: response time p99 87.2 ms "
        "(81 to 95.5) of 150 ms allowed; with 1 failed p99 is 142 ms."
    )


def test_the_sentence_of_cameras_speaks_of_the_age_of_frames_and_of_the_link() -> None:
    asked = question(
        demand=CameraDemand(Cameras(24, 10.0), "latest-only"), link=NAMED["lte"], survive=0
    )
    option = made.onnxruntime(replicas=1)
    sentence = sentence_of(asked, (option,), option)
    assert sentence.startswith("1 replica of onnxruntime for 24 cameras at 10 fps")
    assert "over lte: frame age p99" in sentence
    assert "failed" not in sentence


def test_those_left_who_cannot_keep_up_have_no_bound() -> None:
    option = made.triton()
    assert option.failure is not None
    assert option.failure.response_ms is None
    assert "with 1 failed p99 is no bound" in sentence_of(question(), (option,), option)


def test_a_plan_without_a_number_says_why_for_each_option() -> None:
    other = made.fastapi(backend="triton", why="no measured point meets it")
    found = plan(question(), made.fastapi(), other)
    assert found.chosen is None
    assert found.sentence == (
        f"No number for 240 requests/s, Poisson: fastapi: {made.fastapi().why}; "
        "triton: no measured point meets it."
    )


def test_what_was_asked_stands_in_the_plan() -> None:
    cameras = CameraDemand(Cameras(24, 10.0), "latest-only")
    asked = plan(question(demand=cameras, link=NAMED["lte"], seed=7), made.onnxruntime()).asked
    assert (asked.cameras, asked.fps, asked.rate_rps) == (24, 10.0, 240.0)
    assert (asked.objective, asked.link) == ("p99<=150ms", "lte")
    assert (asked.survive, asked.headroom, asked.most_lost, asked.seed) == (1, 0.3, 0.001, 7)
    plain = plan(question(), made.onnxruntime()).asked
    assert plain.cameras is plain.fps is plain.link is None
    assert plain.link_sources == {}


def test_each_value_of_a_link_has_its_source_or_is_an_assumption() -> None:
    given = LinkProfile(
        "own", one_way_delay_ms=20.0, uplink_bps=8e6, downlink_bps=4e6, sources={"uplink_bps": "us"}
    )
    sources = plan(question(link=given), made.onnxruntime()).asked.link_sources
    assert sources == {
        "one way 20 ms": "assumption",
        "jitter 0 ms": "assumption",
        "loss 0.00%": "assumption",
        "uplink 8,000,000 bps": "us",
        "downlink 4,000,000 bps": "assumption",
    }


@pytest.mark.parametrize("options", [(), (made.onnxruntime(), made.fastapi())])
def test_a_plan_survives_its_file(options: tuple[Any, ...]) -> None:
    found = plan(question(), *options, verifications=made.verifications())
    assert Plan.model_validate_json(found.model_dump_json()) == found
