"""Whether verdicts are right, on servers that are a queue in virtual time: ``make bench-decide``.

The same server twice must not be told apart, and one that takes a tenth longer must be found: by
objective searches and by closed-loop sweeps, as ``infersweep compare`` makes them. Twenty
comparisons go through whole results with all their histograms. Several hundred more spare the
histograms' encoding, which changes no verdict: that is checked too. ``--quick`` takes few.
"""

from __future__ import annotations

import argparse
import math
import statistics
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from random import Random

import numpy as np
from scipy.special import betaincinv

from benchmarks import rows
from benchmarks.detectable import detectable_rows
from benchmarks.queues import Queue, crossing_rps
from benchmarks.rows import Row, at_least, at_most, stated
from benchmarks.synthetic import population, searched
from benchmarks.virtual import (
    FIRST,
    OBJECTIVE,
    SECOND,
    Side,
    ranked,
    search_settings,
    search_side,
    summarised,
    sweep_settings,
    sweep_side,
    winner,
)
from loadtest.results import Ranking, Settings
from loadtest.slo.search import MOST_PROBES

SLOWED = 0.10
"""More time of each request in the worker: its rate falls by 9.1%."""
COUNTED = 0.01
"""The noise between starts at which the targets hold."""
NOISES = (0.0, 0.02, 0.03)
SAME_SHARE, FOUND_SHARE = 19 / 20, 18 / 20
MEAN_PROBES = 10
_SEEDS_APART = 1000
"""Between comparisons: more than the seeds that one of them uses up."""


@dataclass(frozen=True)
class Sizes:
    """How many comparisons: whole ones, per seed, per other noise, per other server."""

    whole: int = 20
    each: int = 100
    noise: int = 40
    other: int = 24
    seeds: tuple[int, ...] = (1, 2, 3, 4)
    formulas: int = 500


QUICK = Sizes(whole=4, each=10, noise=10, other=5, seeds=(1, 2), formulas=100)


@dataclass(frozen=True)
class Method:
    """A way to compare two servers."""

    name: str
    settings: Callable[[int], Settings]
    side: Callable[..., Side]


SEARCHES = Method("search", search_settings, search_side)
SWEEPS = Method("sweep", sweep_settings, sweep_side)


@dataclass(frozen=True)
class Server:
    """A queue, and the objective that it is searched for."""

    name: str
    queue: Queue
    objective: str = OBJECTIVE

    def settings(self, method: Method, seed: int) -> Settings:
        found = method.settings(seed)
        if found.objectives:
            found = found.model_copy(update={"objectives": (self.objective,)})
        return found

    def noisy(self, start_noise: float) -> Server:
        return replace(self, queue=replace(self.queue, start_noise=start_noise))


USUAL = Server("500/s, lognormal", Queue(start_noise=COUNTED))
OTHERS = (
    Server("500/s, constant", Queue(kind="constant")),
    Server("500/s, exponential", Queue(kind="exponential")),
    Server("2,000/s, lognormal", Queue(service_s=0.0005), "p99<=5ms"),
    Server("500/s, lognormal", Queue(), "p90<=20ms"),
    Server("500/s, 3% from window to window", Queue(window_noise=0.03)),
)


@dataclass
class Told:
    """Verdicts, one per comparison, and what searches found on the server as it is."""

    same: list[bool] = field(default_factory=list)
    found: list[bool] = field(default_factory=list)
    rates_rps: list[list[float]] = field(default_factory=list)
    first_probes: list[int] = field(default_factory=list)
    later_probes: list[int] = field(default_factory=list)
    windows_s: list[float] = field(default_factory=list)

    def note(self, side: Side) -> None:
        answers = [one.answer.rate_rps for one in side.searches]
        self.rates_rps.append([rate for rate in answers if rate is not None])
        self.first_probes += [len(one.probes) for one in side.searches[:1]]
        self.later_probes += [len(one.probes) for one in side.searches[1:]]
        self.windows_s.append(sum(one.trial.window_s for one in side.kept))

    def join(self, other: Told) -> None:
        for name, values in vars(self).items():
            values.extend(getattr(other, name))


def compared(server: Server, method: Method, seed: int, count: int) -> Told:
    """So many times: the server against itself, and against one that is slower."""
    told = Told()
    for number in range(count):
        settings = server.settings(method, _SEEDS_APART * (100 * seed + number))
        first, again, slowed = _sides(server, method, settings, (seed, number), plain=True)
        told.same.append(_winner(ranked(settings, [first, again])) is None)
        told.found.append(_winner(ranked(settings, [first, slowed])) == FIRST)
        for side in (first, again):
            told.note(side)
    return told


def _sides(
    server: Server, method: Method, settings: Settings, name: Sequence[int], *, plain: bool
) -> list[Side]:
    """Of the server, of the same once more, and of a slower one."""
    queue = server.queue
    queues = ((FIRST, queue), (SECOND, queue), (SECOND, queue.slowed(SLOWED)))
    return [
        method.side(settings, label, one, np.random.default_rng([*name, place]), plain=plain)
        for place, (label, one) in enumerate(queues)
    ]


def _winner(ranking: Ranking) -> str | None:
    """``none`` where there is no verdict: right of neither kind."""
    try:
        return winner(ranking)
    except ValueError:
        return "none"


def whole(method: Method, count: int) -> Iterator[Row]:
    """The comparisons that are asked for, through trials and histograms to the sentence."""
    same, found, equal = [], [], []
    for number in range(count):
        settings = USUAL.settings(method, _SEEDS_APART * number)
        first, again, slowed = _sides(USUAL, method, settings, (0, number), plain=False)
        plain = _sides(USUAL, method, settings, (0, number), plain=True)
        rankings = [ranked(settings, [first, other]) for other in (again, slowed)]
        spared = [ranked(settings, [plain[0], other]) for other in plain[1:]]
        equal += [_told(a) == _told(b) for a, b in zip(rankings, spared, strict=True)]
        if not number:
            equal.append(summarised(settings, [first, slowed]) == rankings[1])
        same.append(_winner(rankings[0]) is None)
        found.append(_winner(rankings[1]) == FIRST)
        say(f"{method.name} {number + 1}: {rankings[1].sentence}")
    name = f"{method.name}, {COUNTED:.0%} between starts"
    yield _counted(f"{name}: the same, no difference found", same, SAME_SHARE)
    yield _counted(f"{name}: {SLOWED:.0%} slower, found", found, FOUND_SHARE)
    yield _counted(f"{method.name}: rankings the same without histograms", equal, 1.0)


def _told(ranking: Ranking) -> object:
    """Without the latency beside the rates, of which plain points have none."""
    return ranking.sentence, [(row.repeats, row.against_first) for row in ranking.rows]


def many(method: Method, sizes: Sizes) -> tuple[Told, list[Row]]:
    """The rates behind those counts, and where they break."""
    parts = [compared(USUAL, method, seed, sizes.each) for seed in sizes.seeds]
    everything = Told()
    for part in parts:
        everything.join(part)
    name = f"{method.name}, {COUNTED:.0%} between starts"
    found = _rates(name, everything, parts)
    for noise in NOISES:
        say(f"{method.name}, {noise:.0%} between starts")
        told = compared(USUAL.noisy(noise), method, 5, sizes.noise)
        found += _rates(f"{method.name}, {noise:.0%} between starts", told)
    return everything, found


def others(count: int) -> Iterator[Row]:
    """Searches on other servers and for other objectives."""
    for server in OTHERS:
        say(f"search on {server.name} for {server.objective}")
        told = compared(server, SEARCHES, 6, count)
        yield from _rates(f"search, {server.name}, {server.objective}", told)
        yield _spread(f"search, {server.name}, {server.objective}", told)


def _rates(name: str, told: Told, parts: Sequence[Told] = ()) -> list[Row]:
    """With ``parts``, one per seed, the rates must reach what is asked of twenty comparisons."""
    return [
        _share(f"{name}: the same, no difference found", told.same, SAME_SHARE, parts, "same"),
        _share(f"{name}: {SLOWED:.0%} slower, found", told.found, FOUND_SHARE, parts, "found"),
    ]


def _share(
    name: str, right: Sequence[bool], bound: float, parts: Sequence[Told], which: str
) -> Row:
    share = sum(right) / len(right)
    low, high = binomial_interval(sum(right), len(right))
    note = f"{sum(right)} of {len(right)}, 95% interval {low:.3f} to {high:.3f}"
    if not parts:
        return replace(stated(name, [share], "share"), note=note)
    by_seed = ", ".join(f"{statistics.mean(getattr(part, which)):.2f}" for part in parts)
    return replace(at_least(name, [share], bound, "share"), note=f"{note}; by seed {by_seed}")


def _counted(name: str, right: Sequence[bool], share: float) -> Row:
    """So many of all; the bound is rounded down where there are fewer than asked for."""
    bound = math.floor(share * len(right) + 1e-9)
    return Row(name, sum(right), f"of {len(right)}", f">= {bound}", sum(right) >= bound)


def binomial_interval(count: int, of: int, confidence: float = 0.95) -> tuple[float, float]:
    """Clopper and Pearson (Biometrika 26, 1934): never too narrow."""
    tail = (1 - confidence) / 2
    low = float(betaincinv(count, of - count + 1, tail)) if count else 0.0
    high = float(betaincinv(count + 1, of - count, 1 - tail)) if count < of else 1.0
    return low, high


def _spread(name: str, told: Told) -> Row:
    """What the interval of a comparison is made of."""
    logs = [np.log(rates) for rates in told.rates_rps if len(rates) > 1]
    spread = math.sqrt(statistics.mean(float(one.var(ddof=1)) for one in logs))
    return stated(f"{name}: standard deviation of one search", [spread], "share")


def dependence(told: Told) -> Row:
    """Whether repeats are as good as independent; above 1 they agree for a reason of their own."""
    logs = np.array([np.log(rates) for rates in told.rates_rps if len(rates) == 5])
    expected = float(logs.var(axis=1, ddof=1).mean()) / logs.shape[1]
    seen = float(logs.mean(axis=1).var(ddof=1))
    name = "search: spread of means of five over that of independent repeats"
    return stated(name, [math.sqrt(seen / expected)])


def of_the_search(told: Told, formulas: int) -> Iterator[Row]:
    """How long searches take, and how near they come."""
    yield from _on_formulas(formulas)
    first = [statistics.mean(told.first_probes)]
    yield stated("search, queue: mean probes of the first repeat", first, "probes")
    yield at_most(
        "search, queue: mean probes of a later repeat",
        [statistics.mean(told.later_probes)],
        MEAN_PROBES,
        "probes",
    )
    yield stated("search, queue: windows of five repeats", told.windows_s, "s")
    right_rps = crossing_rps(replace(USUAL.queue, start_noise=0.0), 0.99, 0.020)
    errors = [rate / right_rps for rates in told.rates_rps for rate in rates]
    low, high = np.quantile(errors, [0.05, 0.95])
    note = f"crossing at {right_rps:.4g} requests/s; 90% lie within {low:.2f} to {high:.2f}"
    yield replace(stated("search, queue: found rate over the crossing", errors), note=note)
    yield _spread("search, queue", told)
    yield dependence(told)


def _on_formulas(count: int) -> Iterator[Row]:
    probes, exact = [], []
    for number, (server, limit_s) in enumerate(population(count, seed=1)):
        probes.append(len(searched(server, limit_s, 459, Random(number)).path))
        calm = replace(server, noise=0.0, void=0.0, ceiling_rps=math.inf)
        answer = searched(calm, limit_s, 459, Random(number)).answer
        if answer.kind == "found" and answer.met_rps is not None:
            exact.append(answer.met_rps / calm.crossing_rps(limit_s))
    mean = [statistics.mean(probes)]
    yield at_most(f"search, {count} formulas: mean probes", mean, MEAN_PROBES, "probes")
    yield at_most(f"search, {count} formulas: most probes", [max(probes)], MOST_PROBES, "probes")
    error = [1 - min(exact), max(exact) - 1]
    yield at_most("search, formulas without noise: largest error", [max(error)], 0.05, "share")


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.deciding", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="few comparisons of each kind")
    sizes = QUICK if parser.parse_args().quick else Sizes()
    found = [row for method in (SEARCHES, SWEEPS) for row in whole(method, sizes.whole)]
    told, by_searches = many(SEARCHES, sizes)
    _, by_sweeps = many(SWEEPS, sizes)
    found += [*by_searches, *by_sweeps, *others(sizes.other)]
    rows.write("deciding", [*found, *of_the_search(told, sizes.formulas), *detectable_rows()])


if __name__ == "__main__":
    main()
