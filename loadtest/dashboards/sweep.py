"""*Sweep comparison*: the backends of one run side by side, as the generator saw them."""

from __future__ import annotations

from loadtest.dashboards.dashboard import (
    Dashboard,
    Section,
    any_of,
    data_source,
    quantile_choice,
    run,
    steps_marked,
)
from loadtest.dashboards.panels import (
    BEYOND_BUCKETS,
    NO_OBJECTIVE,
    Panel,
    Target,
    heatmap,
    lines,
    seconds,
    stat,
)
from loadtest.dashboards.promql import (
    ANSWERED_OR_GIVEN_UP,
    OBJECTIVE_SHARE,
    RANGE,
    RATE,
    STEP,
    increase,
    largest,
    quantile,
    rate,
    series,
)
from loadtest.live import MEASURING
from loadtest.metrics import DUE, LEVEL, PHASE, REQUESTS, RESPONSE, SERVICE, SLO, WITHIN_SLO
from loadtest.validity import FAILURE_LIMIT

_OK, _FAILED = ('outcome="ok"',), ('outcome!~"ok|dropped"',)
_WAITS = (ANSWERED_OR_GIVEN_UP,)
_MOST_STEPS = 2000
"""Points in the time range of a panel that looks for its largest value."""
_RATES = (
    "Only what was due in a measured window is counted, so a rate reads low where four scrapes "
    "are longer than the window."
)
_PERCENTILES = (
    "Of right answers and of waits that were given up, from when a request was due; from the "
    "summed buckets."
)


def _of_whole_windows(expr: str) -> str:
    """Only where all scrapes that the rates in ``expr`` are of lie in one measured window."""
    phase = f"max by (backend) (min_over_time({series(PHASE)}[{RATE}]))"
    changes = f"max by (backend) (changes({series(LEVEL)}[{RATE}]))"
    return f"({expr} and on (backend) {phase} == {MEASURING} and on (backend) {changes} == 0)"


def _goodput() -> str:
    """Right answers in time, while enough of all requests were."""
    within, every = rate(WITHIN_SLO, "backend"), rate(REQUESTS, "backend")
    return _of_whole_windows(f"{within} >= {OBJECTIVE_SHARE} * {every}")


def _most_goodput() -> str:
    return f"max_over_time({_goodput()}[{RANGE}:{STEP}] @ end())"


def _never() -> str:
    """Zero where there was an objective, and a window to meet it in."""
    seen = _of_whole_windows(rate(WITHIN_SLO, "backend"))
    return f"0 * max_over_time({seen}[{RANGE}:{STEP}])"


def _verdict() -> tuple[Panel, ...]:
    slo = f"max by (backend) (max_over_time({series(SLO)}[{RANGE}]))"
    there = f"{_goodput()} == on (backend) {_most_goodput()}"
    p99 = quantile("0.99", RESPONSE, "backend", where=_WAITS)
    failed, every = increase(REQUESTS, "backend", where=_FAILED), increase(REQUESTS, "backend")
    share = f"{OBJECTIVE_SHARE:.0%}"
    return (
        stat(
            "Most throughput within the objective",
            f"The highest rate of right answers in time while {share} of all requests were. "
            "0: that never held. Of measured windows of four scrapes or more.",
            "reqps",
            Target(f"{_most_goodput()} or on (backend) {_never()}", "{{backend}}"),
            absent=f"{NO_OBJECTIVE}, or no window was four scrapes long",
            max_data_points=_MOST_STEPS,
        ),
        stat(
            "Response time p99 there",
            f"At the moment of the most throughput within the objective. {_PERCENTILES}",
            "s",
            Target(
                f"max_over_time((({p99}) and on (backend) ({there}))[{RANGE}:{STEP}])",
                "{{backend}}",
            ),
            absent=f"{NO_OBJECTIVE}, or none met it",
            mappings=BEYOND_BUCKETS,
            max_data_points=_MOST_STEPS,
        ),
        stat(
            "Errors",
            "Requests of all measured windows that were not answered rightly nor dropped on "
            "purpose, by all that were due "
            f"and have ended. Above {FAILURE_LIMIT:.1%} a window is INVALID.",
            "percentunit",
            Target(f"{failed} / ({every} > 0)", "{{backend}}"),
            thresholds=((None, "green"), (FAILURE_LIMIT, "red")),
        ),
        stat(
            "Objective",
            "The response time that was asked for.",
            "s",
            Target(slo, "{{backend}}"),
            absent=NO_OBJECTIVE,
        ),
    )


def _latency() -> tuple[Panel, ...]:
    chosen = quantile("$quantile", RESPONSE, "backend", where=_WAITS)
    fixed = {"p50": "0.5", "p90": "0.9", "p99": "0.99", "p99.9": "0.999"}
    return (
        seconds(
            "Response time, chosen percentile",
            f"By backend, with the objective where one was stated. {_PERCENTILES}",
            Target(chosen, "{{backend}}"),
            Target(largest(SLO, "backend"), "objective, {{backend}}"),
        ),
        seconds(
            "Service time, chosen percentile",
            "From when a request was sent. Below the response time it tells that requests waited "
            "in the generator.",
            Target(quantile("$quantile", SERVICE, "backend", where=_WAITS), "{{backend}}"),
        ),
        seconds(
            "Response time, p50 to p99.9",
            f"By backend. {_PERCENTILES}",
            *(
                Target(quantile(q, RESPONSE, "backend", where=_WAITS), f"{name} {{{{backend}}}}")
                for name, q in fixed.items()
            ),
            height=10,
        ),
        heatmap(
            "Response times",
            "Right answers per second and bucket, of the chosen backends together: choose one to "
            "see it alone.",
            rate(RESPONSE, "le", where=_OK, part="_bucket"),
            "s",
            "reqps",
            width=12,
            height=10,
        ),
    )


def _load() -> tuple[Panel, ...]:
    measured = f"{series(PHASE)} == {MEASURING}"
    return (
        lines(
            "Offered and achieved rate",
            f"What became due, and what was answered rightly. {_RATES}",
            "reqps",
            Target(rate(DUE, "backend"), "offered {{backend}}"),
            Target(rate(REQUESTS, "backend", where=_OK), "achieved {{backend}}"),
        ),
        lines(
            "Goodput",
            f"Right answers within the objective. {_RATES}",
            "reqps",
            Target(rate(WITHIN_SLO, "backend"), "{{backend}}"),
            absent=NO_OBJECTIVE,
        ),
        lines(
            "Errors by class",
            "Every request that was due ends in one class; right answers and frames that a camera "
            "dropped on purpose are left out.",
            "reqps",
            Target(rate(REQUESTS, "backend", "outcome", where=_FAILED), "{{outcome}} {{backend}}"),
            stacked=True,
            many=True,
        ),
        lines(
            "Level",
            "The step of the sweep while it is measured: users or requests/s, as the scenario "
            "counts.",
            "none",
            Target(
                f"max by (backend) ({series(LEVEL)} and on (run, backend, model, scenario) "
                f"({measured}))",
                "{{backend}}",
            ),
        ),
    )


def _steps() -> str:
    """One series per level that was measured; the last one inside each step of the graph."""
    measured = f"{series(PHASE)} == {MEASURING}"
    level = f"{series(LEVEL)} and on (run, backend, model, scenario) ({measured})"
    return f'count_values by (backend) ("level", last_over_time(({level})[{STEP}:]))'


SWEEP = Dashboard(
    name="sweep",
    title="Sweep comparison",
    description="The backends of one run side by side, as the load generator saw them.",
    variables=(
        data_source(),
        run(PHASE.sample),
        any_of("backend", "Backend", PHASE.sample, multi=True),
        any_of("model", "Model", PHASE.sample),
        quantile_choice(),
    ),
    annotations=(steps_marked("Steps", _steps(), "{{backend}}: level {{level}}", "backend,level"),),
    sections=(
        Section("Verdict", _verdict()),
        Section("Latency", _latency()),
        Section("Load", _load()),
    ),
)
