"""The simulation against queues that have been solved, and closed forms against each other."""

from __future__ import annotations

import math

import numpy as np
import pytest

from loadtest.capacity import Fleet, Requests, Scheduler, ServiceSamples, simulate
from loadtest.capacity.formulas import (
    allen_cunneen_wait_s,
    batch_capacity_rps,
    batch_response_bound_s,
    erlang_c,
    fit_scalability,
    linear_batch_s,
    md1_wait_s,
    mg1_wait_s,
    mm1_wait_s,
    mmc_wait_s,
)
from serving.errors import UsageError

MS = 1_000_000
MEAN_S = 1e-3
_MIDDLES = (np.arange(100_000) + 0.5) / 100_000
EXPONENTIAL = ServiceSamples.of({1: -np.log(1 - _MIDDLES) * MS})
"""Quantiles of the distribution, evenly spaced: their mean is its mean within 0.001%."""
CONSTANT = ServiceSamples.of({1: [MS]})


def poisson(rate_rps: float, count: int, seed: int) -> np.ndarray:
    gaps = np.random.default_rng(seed).exponential(1e9 / rate_rps, count)
    return np.cumsum(gaps).astype(np.int64)


def served(service: ServiceSamples, rate_rps: float, count: int, servers: int = 1) -> Requests:
    """The first tenth, while the queue fills, is left out by ``mean_wait_s``."""
    fleet = Fleet(service, Scheduler(instances=servers))
    return simulate(fleet, poisson(rate_rps, count, seed=11), seed=12)


def mean_wait_s(found: Requests) -> float:
    return float(found.waited_ns[len(found) // 10 :].mean()) / 1e9


def test_one_exponential_server_waits_as_the_textbook_says() -> None:
    # The mean of n waits has a relative standard error of sqrt(29 / n) at this load, here 0.54%.
    found = mean_wait_s(served(EXPONENTIAL, 500, 1_000_000))
    assert found == pytest.approx(mm1_wait_s(500, MEAN_S), rel=0.01)


def test_one_constant_server_waits_as_the_textbook_says() -> None:
    found = mean_wait_s(served(CONSTANT, 500, 1_000_000))
    assert found == pytest.approx(md1_wait_s(500, MEAN_S), rel=0.01)


def test_several_exponential_servers_wait_as_the_textbook_says() -> None:
    found = served(EXPONENTIAL, 2_400, 1_200_000, servers=4)
    assert mean_wait_s(found) == pytest.approx(mmc_wait_s(2_400, MEAN_S, 4), rel=0.01)
    share = np.mean(found.waited_ns > 0)
    assert share == pytest.approx(erlang_c(2_400, MEAN_S, 4), rel=0.01)


def test_measured_times_of_any_kind_wait_as_pollaczek_and_khinchine_say() -> None:
    bimodal = ServiceSamples.of({1: [MS // 2] * 9 + [11 * MS // 2]})
    assert bimodal.mean_ns(1) == MS
    wanted = mg1_wait_s(500, MEAN_S, bimodal.squared_variation(1))
    assert mean_wait_s(served(bimodal, 500, 1_000_000)) == pytest.approx(wanted, rel=0.01)


def test_whoever_comes_finds_as_many_as_the_rate_times_the_time_taken() -> None:
    """Little's law, with the number seen by Poisson arrivals (Wolff, 1982) as the mean number."""
    service = ServiceSamples.of({1: [MS], 4: [2 * MS]})
    scheduler = Scheduler(max_batch_size=4, max_queue_delay_ns=MS // 2)
    arrived = poisson(2_000, 200_000, seed=3)
    found = simulate(Fleet(service, scheduler, 2, "least-outstanding"), arrived, seed=4)
    came = np.arange(len(found))
    gone = np.searchsorted(np.sort(found.done_ns), arrived, side="right")
    assert np.mean(came - gone) == pytest.approx(2_000 * found.took_ns.mean() / 1e9, rel=0.01)


@pytest.mark.parametrize("rate_rps", [100.0, 500.0, 1_000.0])
def test_batches_without_a_limit_take_what_inoue_bounds(rate_rps: float) -> None:
    """1 ms a batch and 0.5 ms a request; load is that of the requests alone."""
    service = ServiceSamples.of({size: [MS + size * MS // 2] for size in range(1, 129)})
    assert linear_batch_s(service) == pytest.approx((5e-4, 1e-3))
    fleet = Fleet(service, Scheduler(max_batch_size=128))
    found = simulate(fleet, poisson(rate_rps, 300_000, seed=5), seed=6)
    assert found.batch.max() < 128
    mean_s = found.took_ns.mean() / 1e9
    bound_s = batch_response_bound_s(rate_rps, 5e-4, 1e-3)
    assert 0.9 * bound_s < mean_s < bound_s


def test_no_queue_of_batches_answers_more_than_its_best_size() -> None:
    service = ServiceSamples.of({1: [MS], 4: [2 * MS], 8: [8 * MS]})
    assert batch_capacity_rps(service, 8, 2) == 2 * 4 / 2e-3
    assert batch_capacity_rps(service, 1, 1) == 1_000
    fleet = Fleet(service, Scheduler(max_batch_size=4, instances=2))
    found = simulate(fleet, poisson(8_000, 50_000, seed=7), seed=8)
    rate_rps = len(found) / found.done_ns.max() * 1e9
    assert 0.98 * 4_000 < rate_rps <= 4_000


def test_erlang_c_of_two_servers_is_its_closed_form() -> None:
    # 2 rho^2 / (1 + rho), at rho = 0.75.
    assert erlang_c(1.5, 1.0, 2) == pytest.approx(2 * 0.75**2 / 1.75)
    assert erlang_c(0.6, 1.0, 1) == pytest.approx(0.6)


def test_allen_and_cunneen_are_exact_where_others_are() -> None:
    def waits(servers: int, arrivals: float, service: float) -> float:
        return allen_cunneen_wait_s(
            700 * servers,
            MEAN_S,
            servers,
            arrivals_squared_variation=arrivals,
            service_squared_variation=service,
        )

    assert waits(3, 1, 1) == pytest.approx(mmc_wait_s(2_100, MEAN_S, 3))
    assert waits(1, 1, 0) == pytest.approx(md1_wait_s(700, MEAN_S))
    assert waits(1, 1, 2.5) == pytest.approx(mg1_wait_s(700, MEAN_S, 2.5))
    assert waits(1, 1, 1) == pytest.approx(mm1_wait_s(700, MEAN_S))
    assert waits(1, 0, 0) == 0


def test_the_scalability_law_is_found_again() -> None:
    def law(users: float) -> float:
        return 900 * users / (1 + 0.04 * (users - 1) + 0.0006 * users * (users - 1))

    users = (1, 2, 4, 8, 16, 32, 64)
    fitted = fit_scalability({one: law(one) for one in users})
    assert fitted.contention == pytest.approx(0.04, rel=1e-4)
    assert fitted.coherency == pytest.approx(0.0006, rel=1e-4)
    assert fitted.error < 1e-6
    assert fitted.peak == pytest.approx(math.sqrt(0.96 / 0.0006), rel=1e-3)
    assert fitted.throughput_rps(24) == pytest.approx(law(24), rel=1e-4)
    short = fit_scalability({one: law(one) for one in users if one < 30})
    assert short.peak is None, "it lies beyond what was measured"
    with pytest.raises(UsageError, match="outside of the measured 1 to 16"):
        short.throughput_rps(17)


@pytest.mark.parametrize(
    "refused",
    [
        lambda: mm1_wait_s(1_000, MEAN_S),
        lambda: mmc_wait_s(2_000, MEAN_S, 2),
        lambda: mg1_wait_s(0, MEAN_S, 1),
        lambda: batch_response_bound_s(2_001, 5e-4, 1e-3),
        lambda: batch_capacity_rps(CONSTANT, 2, 1),
        lambda: linear_batch_s(CONSTANT),
        lambda: fit_scalability({1: 10, 2: 19, 4: 35}),
    ],
)
def test_what_has_no_answer_is_refused(refused) -> None:
    with pytest.raises(UsageError) as error:
        refused()
    assert error.value.hint
