"""Options of the commands that search for a highest rate, and the settings they come to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

import typer

from loadtest.cli.options import require_positive
from loadtest.objective import EXAMPLE, Objectives
from loadtest.results import Settings
from loadtest.slo.measurable import require_measurable
from serving.errors import UsageError
from serving.host import CpuSplit

QUICK_S, WINDOWS_S = (3.0, 20.0), (5.0, 60.0)
"""Shortest and longest window. Below three seconds there are too few batches to tell how much slow
requests come together."""

ObjectiveOption = Annotated[
    list[str] | None,
    typer.Option("--objective", "-o", help=f"such as '{EXAMPLE}'; all given must hold"),
]
MaxErrorsOption = Annotated[
    str | None, typer.Option(help="share that may fail, 0.1% at most [default: 0.1%]")
]
LimitOption = Annotated[
    float | None, typer.Option(help="seconds of a search's longest window [default: 60]")
]


@dataclass(frozen=True)
class SearchWindows:
    """How long the windows of a search may be; ``None`` where the user left it open."""

    shortest_s: float | None
    longest_s: float | None
    quick: bool

    def lengths_s(self) -> tuple[float, float]:
        """Raises UsageError when one is not above 0, or the longest is below the shortest."""
        shortest_s, longest_s = QUICK_S if self.quick else WINDOWS_S
        if self.shortest_s is not None:
            shortest_s = require_positive(self.shortest_s, "--duration")
        if self.longest_s is not None:
            longest_s = require_positive(self.longest_s, "--limit")
        if longest_s < shortest_s:
            raise UsageError(
                f"--limit {longest_s:g} is below --duration {shortest_s:g}",
                hint="The longest window cannot be shorter than the shortest.",
            )
        return shortest_s, longest_s


def search_settings(
    objectives: Objectives,
    *,
    model: str,
    labels: Sequence[str],
    repeats: int,
    windows: SearchWindows,
    timeout_s: float,
    seed: int,
    split: CpuSplit,
    rank_unlike: bool = False,
    link: str | None = None,
    link_per_connection: bool = False,
) -> Settings:
    """Settings of searches with Poisson arrivals on every one of ``labels``.

    Raises:
        UsageError: an option is out of range, or a backend's memory cannot be seen.
        MachineError: no power rail can be read, though joules are asked for.
    """
    for label in labels:
        require_measurable(objectives, label, require_positive(timeout_s, "--timeout"))
    shortest_s, longest_s = windows.lengths_s()
    return Settings(
        model=model,
        backends=tuple(labels),
        scenario="server",
        level_name="requests/s",
        levels=(),
        duration_s=shortest_s,
        repeats=int(require_positive(repeats, "--repeats")),
        timeout_s=timeout_s,
        seed=seed,
        limit_s=longest_s,
        slo_ms=objectives.percentiles[0].limit_ns / 1e6,
        objectives=objectives.texts,
        rank_unlike=rank_unlike,
        link=link,
        link_per_connection=link_per_connection,
        server_cpus=split.server,
        client_cpus=split.client,
    )
