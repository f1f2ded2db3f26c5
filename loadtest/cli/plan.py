"""``infersweep plan``: how many replicas or devices a demand needs, from profiles."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, cast, get_args

import typer

from loadtest.cli.options import (
    DEFAULT_REPOSITORY,
    RepositoryOption,
    one_of,
    parse_share,
    parse_time_ms,
    require_positive,
)
from loadtest.links.profile import link_profile
from loadtest.objective import Percentile, parse_objectives
from serving.errors import UsageError

NAME = "plan"
EXAMPLES = (
    "Examples: `infersweep plan results/A/profile.json --rate 1000 --objective 'p95<=50ms'` · "
    "`infersweep plan profiles/*.json --cameras 24 --fps 10 --policy latest-only --link lte "
    "--objective 'p99<=250ms' --survive 1 --verify`"
)


def run(
    profiles: Annotated[
        list[Path], typer.Argument(help="profile.json files of one model, or their folders")
    ],
    objective: Annotated[
        str, typer.Option("--objective", "-o", help="such as 'p99<=50ms'; of frames their age")
    ],
    rate: Annotated[float | None, typer.Option(help="requests/s of the busiest hour")] = None,
    day: Annotated[
        str | None, typer.Option(help="24 shares of the busiest hour, comma-separated")
    ] = None,
    trace: Annotated[
        Path | None, typer.Option(help="or a recorded trace, CSV or JSONL, as for replay")
    ] = None,
    cameras: Annotated[int | None, typer.Option(help="or so many cameras")] = None,
    fps: Annotated[float, typer.Option(help="frames per second of each")] = 10.0,
    phase: Annotated[str, typer.Option(help="random or synchronised")] = "random",
    policy: Annotated[str, typer.Option(help="fifo, drop-late or latest-only")] = "latest-only",
    jitter_ms: Annotated[float, typer.Option(help="how late a frame may be")] = 0.0,
    link: Annotated[
        str | None, typer.Option(help="wifi, 5g-sa, 5g-nsa, lte, slow-4g or a file; one for each")
    ] = None,
    max_lost: Annotated[
        str | None, typer.Option(help="share unanswered or dropped [default: 0.1%; cameras: 1%]")
    ] = None,
    survive: Annotated[int, typer.Option(help="replicas that may fail at once")] = 0,
    headroom: Annotated[str, typer.Option(help="share of the usable rate left unused")] = "30%",
    balance: Annotated[str, typer.Option(help="least-outstanding or round-robin")] = (
        "least-outstanding"
    ),
    detect: Annotated[str, typer.Option(help="until the balancer knows of a failure")] = "1s",
    burst: Annotated[str, typer.Option(help="times the rate, and for how long")] = "1.5x10s",
    price: Annotated[float | None, typer.Option(help="of one replica, per hour")] = None,
    currency: Annotated[str | None, typer.Option(help="of the price")] = None,
    hover_w: Annotated[float | None, typer.Option(help="hover power of the drone in W")] = None,
    battery_wh: Annotated[float | None, typer.Option(help="its battery in Wh")] = None,
    frame: Annotated[
        str | None, typer.Option(help="WIDTHxHEIGHT: what such a frame weighs on the link")
    ] = None,
    verify: Annotated[
        bool, typer.Option("--verify", help="run one held-out load of each on this machine")
    ] = False,
    verify_for: Annotated[
        float | None, typer.Option(help="seconds of that load [default: by the percentile]")
    ] = None,
    seed: Annotated[int, typer.Option(help="of arrivals and service times")] = 1,
    out: Annotated[Path | None, typer.Option(help="folder for plan.json and plan.html")] = None,
    repository: RepositoryOption = DEFAULT_REPOSITORY,
) -> int:
    """Say how many replicas keep the objective, what breaks first, and how sure that is."""
    # The simulation is compiled by a library that takes long to import.
    from loadtest.capacity.scheduler import Balance  # noqa: PLC0415
    from loadtest.cli.planning import Wanted, demand_of, make_plan  # noqa: PLC0415
    from loadtest.plan.question import Question  # noqa: PLC0415

    wanted_cameras = None if cameras is None else (cameras, fps, phase, policy, jitter_ms)
    percentile = _percentile(objective)
    question = Question(
        demand=demand_of(
            *(rate, day, trace, wanted_cameras),
            limit_ns=percentile.limit_ns,
            over_link=link is not None,
        ),
        objective=percentile,
        most_lost=parse_share(max_lost, "--max-lost") or (0.001 if cameras is None else 0.01),
        link=link_profile(link) if link else None,
        survive=survive,
        headroom=0.0 if headroom in ("0", "0%") else parse_share(headroom, "--headroom") or 0.0,
        balance=cast("Balance", one_of(balance, get_args(Balance), "--balance")),
        detect_s=parse_time_ms(detect, "--detect") / 1e3,
        burst=_burst(burst),
        price_per_hour=None if price is None else require_positive(price, "--price"),
        currency=currency,
        hover_w=None if hover_w is None else require_positive(hover_w, "--hover-w"),
        battery_wh=None if battery_wh is None else require_positive(battery_wh, "--battery-wh"),
        seed=seed,
    )
    length_s = None if verify_for is None else require_positive(verify_for, "--verify-for")
    wanted = Wanted(tuple(profiles), out, repository, verify, length_s, frame)
    return make_plan(question, wanted)


def _percentile(text: str) -> Percentile:
    found = parse_objectives((text,))
    if len(found.each) > 1:
        raise UsageError(
            f"--objective {text!r} holds several", hint="A plan keeps one percentile: 'p99<=50ms'."
        )
    return found.percentiles[0]


def _burst(text: str) -> tuple[float, float]:
    factor, _, length = text.partition("x")
    try:
        found = float(factor)
    except ValueError:
        found = 0.0
    if not 1 < found < 1e3:
        raise UsageError(f"--burst is {text!r}", hint="Write for example 1.5x10s.")
    return found, parse_time_ms(length, "--burst") / 1e3
