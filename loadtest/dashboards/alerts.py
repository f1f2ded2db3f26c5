"""Alert rules. Burn rates: Google, *The Site Reliability Workbook*, chapter "Alerting on SLOs",
table 5-8; a pair of short windows for runs on the bench is added.
"""

from __future__ import annotations

from dataclasses import dataclass

from loadtest import metrics as client
from loadtest.dashboards.promql import OBJECTIVE_SHARE, SENT
from loadtest.dashboards.recording import VIEWS, burn
from loadtest.validity import CEILING_LIMIT, LATE_NS, LATE_OF_MEDIAN, LATE_SHARE_LIMIT
from serving.metrics import table

_WINDOW = "1m"
_BUDGET = f"{1 - OBJECTIVE_SHARE:g}"


@dataclass(frozen=True)
class Alert:
    """Attributes: ``hold``: how long ``query`` must have held; ``severity``: page, warn, bench."""

    name: str
    query: str
    hold: str
    severity: str
    summary: str
    meaning: str


@dataclass(frozen=True)
class _Burn:
    name: str
    factor: float
    long: str
    short: str
    severity: str


_BURNS = (
    _Burn("Fast", 14.4, "1h", "5m", "page"),
    _Burn("Slow", 6.0, "6h", "30m", "page"),
    _Burn("Bench", 14.4, "1m", "20s", "bench"),
)


def _burn_alert(view: str, pair: _Burn) -> Alert:
    limit = f"({pair.factor:g} * {_BUDGET})"
    long, short = burn(view, pair.long).name, burn(view, pair.short).name
    who = "the server" if view == "server" else "the load generator"
    return Alert(
        f"Infersweep{view.capitalize()}SloBurn{pair.name}",
        f"{long} > {limit}\nand\n{short} > {limit}",
        "0s",
        pair.severity,
        f"{{{{ $labels.backend }}}} misses its objective {pair.factor:g} times too often",
        f"As {who} counts it, requests miss the objective at {pair.factor:g} times the rate that "
        f"{OBJECTIVE_SHARE:.0%} allows, over {pair.long} and still over {pair.short}.",
    )


def _rate(sample: str, by: tuple[str, ...], where: str = "") -> str:
    return f"sum by ({', '.join(by)}) (rate({sample}{where}[{_WINDOW}]))"


def _late() -> str:
    """As in ``loadtest.validity``: more than 1% later than 1 ms and than 5% of the median."""
    by = (*client.LOAD, "le")
    # What waits for its stream's last reply leaves late through the server.
    late = _rate(f"{client.LATENESS.name}_bucket", by, '{scenario!="streams"}')
    service = _rate(f"{client.SERVICE.name}_bucket", by, '{outcome="ok"}')
    quantile = f"histogram_quantile({1 - LATE_SHARE_LIMIT:g}, {late})"
    return (
        f"{quantile} > {LATE_NS / 1e9:g}\nand\n"
        f"{quantile}\n> {LATE_OF_MEDIAN:g} * histogram_quantile(0.5, {service})"
    )


ALERTS = (
    *(_burn_alert(view, pair) for view in VIEWS for pair in _BURNS),
    Alert(
        "InfersweepTargetDown",
        "up == 0",
        "15s",
        "warn",
        "{{ $labels.instance }} ({{ $labels.job }} {{ $labels.backend }}) cannot be scraped",
        "A target that is announced does not answer; one whose run has ended is not announced.",
    ),
    Alert(
        "InfersweepGeneratorLate",
        _late(),
        "0s",
        "bench",
        "the generator sends late to {{ $labels.backend }}",
        f"More than {LATE_SHARE_LIMIT:.0%} of the requests left later than {LATE_NS / 1e6:g} ms "
        f"and than {LATE_OF_MEDIAN:.0%} of the median service time: the load is not the one that "
        "was asked for.",
    ),
    Alert(
        "InfersweepGeneratorAtCeiling",
        _rate(client.REQUESTS.sample, client.LOAD, f"{{{SENT}}}")
        + f"\n> {CEILING_LIMIT:g} * max by ({', '.join(client.LOAD)}) ({client.CEILING.name})",
        "0s",
        "bench",
        "the generator is near its ceiling against {{ $labels.backend }}",
        f"Above {CEILING_LIMIT:.0%} of what it reaches on the null server the generator adds "
        "latency of its own.",
    ),
    Alert(
        "InfersweepWrongAnswers",
        f"sum by ({', '.join(client.LOAD)}) "
        f'(increase({client.REQUESTS.sample}{{outcome="wrong_answer"}}[{_WINDOW}])) > 0',
        "0s",
        "bench",
        "{{ $labels.backend }} answers wrongly",
        "Speed of wrong answers is no speed.",
    ),
    Alert(
        "InfersweepWorkerRestarted",
        f"increase({table.RESTARTS.sample}[{_WINDOW}]) > 0",
        "0s",
        "warn",
        "a process of {{ $labels.backend }} ended on its own and was started again",
        "What came after is another server; a window in which that happens is INVALID.",
    ),
)
