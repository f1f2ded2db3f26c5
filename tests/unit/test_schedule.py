"""Arrival times: seeded, absolute, of the rate and shape they claim."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

import numpy as np
import pytest

from loadtest.schedule import (
    CHUNK,
    Times,
    constant,
    gamma,
    poisson,
    recorded,
    share,
    varying,
)

S = 1_000_000_000


def first(chunks: Iterator[Times], count: int) -> Times:
    return np.concatenate(list(islice(chunks, count // CHUNK + 1)))[:count]


def rng(seed: int = 1) -> np.random.Generator:
    return np.random.default_rng(seed)


def test_constant_arrivals_do_not_drift_over_an_hour() -> None:
    times = first(constant(300), 300 * 3600 + 1)
    assert times[300 * 3600] == 3600 * S
    assert set(np.diff(times).tolist()) <= {3_333_333, 3_333_334}


@pytest.mark.parametrize("make", [poisson, lambda r, g: gamma(r, 1.0, g)])
def test_poisson_has_its_rate_and_exponential_gaps(make: object) -> None:
    times = first(make(1000, rng()), 100_000)  # type: ignore[operator]
    gaps = np.diff(times) / S
    assert gaps.mean() == pytest.approx(1 / 1000, rel=0.02)
    assert gaps.std() / gaps.mean() == pytest.approx(1.0, rel=0.02)
    assert (np.diff(times) >= 0).all()


@pytest.mark.parametrize("burstiness", [0.25, 4.0, 16.0])
def test_gamma_has_its_rate_and_burstiness(burstiness: float) -> None:
    gaps = np.diff(first(gamma(1000, burstiness, rng()), 200_000)) / S
    assert gaps.mean() == pytest.approx(1 / 1000, rel=0.03)
    assert gaps.var() / gaps.mean() ** 2 == pytest.approx(burstiness, rel=0.1)


def test_the_seed_alone_decides() -> None:
    one, same, other = (first(poisson(10, rng(seed)), 100) for seed in (1, 1, 2))
    assert (one == same).all()
    assert (one != other).any()


def test_a_ramp_is_denser_where_its_rate_is_higher() -> None:
    times = np.concatenate(list(varying([(0, 0), (10, 2000)], rng()))) / S
    counts = np.histogram(times, bins=10, range=(0, 10))[0]
    wanted = np.arange(100, 2000, 200)
    assert len(times) == pytest.approx(10_000, rel=0.03)
    assert counts == pytest.approx(wanted, rel=0.25)
    assert times.max() < 10


def test_a_jump_in_rate_is_where_it_is_said_to_be() -> None:
    profile = [(0, 10), (5, 10), (5, 100), (6, 100), (6, 10), (10, 10)]
    times = np.concatenate(list(varying(profile, None))) / S
    assert len(times) == 10 * 9 + 100
    assert ((times >= 5) & (times < 6)).sum() == pytest.approx(100, abs=1)


def test_a_replay_keeps_gaps_and_divides_them_by_its_speed() -> None:
    (times,) = recorded([100.0, 100.5, 100.5, 103.0], 2.0)
    assert times.tolist() == [0, S // 4, S // 4, 3 * S // 2]


def test_generators_that_share_a_schedule_send_each_arrival_once() -> None:
    whole = first(poisson(100, rng()), 3 * CHUNK)
    parts = [np.concatenate(list(islice(share(poisson(100, rng()), i, 3), 3))) for i in range(3)]
    together = np.sort(np.concatenate(parts))
    assert (together == whole).all()
    assert max(map(len, parts)) - min(map(len, parts)) <= 1
