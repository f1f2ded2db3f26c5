"""Which backend serves most, and whether that can be told from chance. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from statistics import geometric_mean, median

from loadtest.results import BackendSummary, Contrast, Rank, Ranking
from loadtest.searched import SearchRecord
from loadtest.significance import LEAST_REPEATS, compare

RESOLUTION = 1e-6
"""Rates are counts over seconds: finer than any difference that matters."""


def rank_points(
    backends: Sequence[BackendSummary], out: Mapping[str, str], level_name: str = "users"
) -> Ranking:
    """Backends by their best VALID point.

    ``out`` maps backends that must not be ranked to the reason.
    """
    rows, unranked = _sorted_out(backends, out, lambda one: _best_point(one) or "no VALID point")
    told = [f"{_rate(row)} inferences/s at {row.level:g} {level_name}" for row in rows]
    winner, sentence = _decide(rows, told)
    return Ranking(winner=winner, sentence=sentence, rows=tuple(rows), unranked=unranked)


def rank_searches(
    backends: Sequence[BackendSummary],
    searches: Sequence[SearchRecord],
    out: Mapping[str, str],
    rows_per_request: int = 1,
) -> Ranking:
    """Backends by the highest rate that met the objectives, one value per search."""
    lower_bounds = {one.backend for one in searches if one.answer.kind == "at least"}

    def best(backend: BackendSummary) -> Rank | str:
        own = [one for one in searches if one.backend == backend.label]
        found = [one for one in own if one.found_rps is not None]
        if 2 * len(found) > len(own):
            return _best_rate(backend.label, found, rows_per_request)
        return own[0].answer.sentence if own else "it has not been searched"

    rows, unranked = _sorted_out(backends, out, best)
    for row in [row for row in rows[1:] if row.backend in lower_bounds]:
        rows.remove(row)
        unranked[row.backend] = (
            f"it serves at least {_rate(row)} inferences/s, and how much more is not known"
        )
    asked = " and ".join(searches[0].objectives) if searches else "the objectives"
    told = [f"{_rate(row)} inferences/s within {asked}" for row in rows]
    winner, sentence = _decide(rows, told)
    if len(backends) == 1 and searches:
        # With nothing to compare with, the answer is that of the search itself.
        found = (one for one in searches if one.found_rps is not None or not rows)
        sentence = next(found).answer.sentence
    return Ranking(winner=winner, sentence=sentence, rows=tuple(rows), unranked=unranked)


def _sorted_out(
    backends: Sequence[BackendSummary],
    out: Mapping[str, str],
    best: Callable[[BackendSummary], Rank | str],
) -> tuple[list[Rank], dict[str, str]]:
    """Those that have a rank, the most first, and why others have none.

    ``best`` gives a backend at its best, or why there is no such thing.
    """
    rows, unranked = [], {}
    for backend in backends:
        found = out.get(backend.label) or backend.excluded or best(backend)
        if isinstance(found, Rank):
            rows.append(found)
        else:
            unranked[backend.label] = found
    return _contrasted(rows), unranked


def _best_point(backend: BackendSummary) -> Rank | None:
    valid = [point for point in backend.points if point.verdict == "VALID"]
    if not valid:
        return None
    best = max(valid, key=lambda point: point.inferences_per_s)
    planned = sum(best.outcomes.values())
    wanted = planned - best.outcomes.get("dropped", 0)
    return Rank(
        backend=backend.label,
        level=best.level,
        inferences_per_s=best.inferences_per_s,
        inferences_per_s_range=best.inferences_per_s_range,
        repeats=best.inferences_per_s_repeats,
        p99_ms=best.response_time_ms.p99.value_ms if best.response_time_ms.p99 else None,
        failed_share=(wanted - best.outcomes.get("ok", 0)) / planned if planned else None,
    )


def _best_rate(label: str, found: Sequence[SearchRecord], rows: int) -> Rank:
    rates_rps = [one.found_rps for one in found if one.found_rps is not None]
    probes = [one.best for one in found if one.best is not None]
    p99_ms = next(
        (seen.value_ms for probe in probes for seen in probe.latencies if seen.name == "p99"), None
    )
    due = sum(probe.requests for probe in probes)
    return Rank(
        backend=label,
        level=median(rates_rps),
        inferences_per_s=median(rates_rps) * rows,
        inferences_per_s_range=(min(rates_rps) * rows, max(rates_rps) * rows),
        repeats=tuple(rate_rps * rows for rate_rps in rates_rps),
        p99_ms=p99_ms,
        failed_share=sum(probe.failed for probe in probes) / due if due else None,
    )


def _contrasted(rows: Sequence[Rank]) -> list[Rank]:
    """The most first, each other one with its ratio to the first.

    By medians, which are what is shown; by geometric means, which are what is compared, where an
    odd repeat would put one first that is significantly slower.
    """
    by_median = _against_first(sorted(rows, key=lambda row: row.inferences_per_s, reverse=True))
    if not any(row.against_first and row.against_first.verdict == "faster" for row in by_median):
        return by_median
    return _against_first(sorted(rows, key=lambda row: geometric_mean(_values(row)), reverse=True))


def _against_first(ordered: Sequence[Rank]) -> list[Rank]:
    return [
        row if place == 0 else row.model_copy(update={"against_first": _contrast(row, ordered[0])})
        for place, row in enumerate(ordered)
    ]


def _contrast(row: Rank, first: Rank) -> Contrast:
    found = compare(_values(first), _values(row), resolution=RESOLUTION)
    return Contrast(ratio=found.ratio, low=found.low, high=found.high, verdict=found.verdict)


def _values(row: Rank) -> Sequence[float]:
    """Results of older schemas kept the median alone."""
    return row.repeats or (row.inferences_per_s,)


def _decide(rows: Sequence[Rank], told: Sequence[str]) -> tuple[str | None, str]:
    """The winner and the answer in one sentence; ``told`` says how much each row serves."""
    if not rows:
        return None, "No backend could be ranked, so there is no answer."
    first = rows[0].backend
    if len(rows) == 1:
        return None, f"Only {first} could be ranked: {told[0]}."
    tied = [
        row
        for row in rows[1:]
        if row.against_first and row.against_first.verdict == "no significant difference"
    ]
    if tied:
        names = [first, *(row.backend for row in tied)]
        return None, (
            f"No significant difference between {', '.join(names[:-1])} and {names[-1]}: "
            f"{told[0]}, {_factor(tied[0])} {tied[0].backend}."
        )
    if not all(row.against_first and row.against_first.verdict == "slower" for row in rows[1:]):
        return None, (
            f"{first} leads with {told[0]}, {_factor(rows[1])} {rows[1].backend}, but fewer "
            f"than {LEAST_REPEATS} repeats cannot tell that from chance."
        )
    return first, f"{first} serves most: {told[0]}, {_factor(rows[1])} {rows[1].backend}."


def _factor(row: Rank) -> str:
    """How many times ``row`` the first serves: ``1.25 times (1.20 to 1.31 at 95%)``."""
    against = row.against_first
    assert against is not None
    if against.low is None or against.high is None:
        return f"{1 / against.ratio:.2f} times"
    return f"{1 / against.ratio:.2f} times ({1 / against.high:.2f} to {1 / against.low:.2f} at 95%)"


def _rate(row: Rank) -> str:
    value = row.inferences_per_s
    return f"{value:,.0f}" if value >= 1000 else f"{value:,.1f}"
