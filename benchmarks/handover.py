"""A new version takes over while requests come: the longest answer, and whether one was lost."""

from __future__ import annotations

import shutil
import threading
import urllib.request
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from benchmarks.cases import FEW, OURS, joined
from benchmarks.load import Bench, say
from benchmarks.rows import Row, at_most, stated
from benchmarks.turns import Plan
from loadtest.histogram import merge
from loadtest.payload import write_payloads
from loadtest.trial import LevelOutput
from serving.models.repository import Model


def handover(plan: Plan, model: Model) -> list[Row]:
    """The longest answer with and without a switch, and requests that failed in all turns.

    The new version holds the same file, so right answers stay the same.
    """
    case = plan.case("handover", model, joined(FEW))
    write_payloads(case.folder / "payloads", [case.payload])
    bench = Bench(case.model, case.payload, case.folder, plan.turns, plan.seconds)
    longest: dict[str, list[float]] = {"without": [], "with": []}
    failed = 0
    with case.served(OURS) as server:
        assert server.process is not None, "ours runs here"
        folder = server.model.folder
        for turn in range(plan.turns):
            say(f"handover, turn {turn + 1}")
            quiet = bench.ours(server.url, "closed", FEW)
            switch = _later(plan.seconds, lambda: _add_version(server.url, folder))
            switched = bench.ours(server.url, "closed", FEW, seconds=2 * plan.seconds)
            switch.join()
            longest["without"].append(_longest_ms(quiet))
            longest["with"].append(_longest_ms(switched))
            failed += sum(count for kind, count in switched.outcomes.items() if kind != "ok")
    title = f"{model.name}, {FEW} users: longest answer"
    row = stated(f"{title} while a new version takes over", longest["with"], "ms")
    told = f"without: {', '.join(f'{ms:.1f}' for ms in longest['without'])} ms"
    return [
        replace(row, note="; ".join(part for part in (row.note, told) if part)),
        at_most(f"{model.name}: requests lost or wrong meanwhile", [failed], 0, "requests"),
    ]


def _later(seconds: float, action: Callable[[], None]) -> threading.Timer:
    timer = threading.Timer(seconds, action)
    timer.start()
    return timer


def _add_version(url: str, folder: Path) -> None:
    """The newest version again under the next number, in one step; then the server is told."""
    newest = max(int(child.name) for child in folder.iterdir() if child.name.isdecimal())
    staged = folder.parent / f"staged-{newest + 1}"
    shutil.copytree(folder / str(newest), staged)
    staged.rename(folder / str(newest + 1))
    asked = urllib.request.Request(f"{url}/v2/repository/models/{folder.name}/load", method="POST")
    with urllib.request.urlopen(asked, timeout=60):
        pass


def _longest_ms(output: LevelOutput) -> float:
    merged = merge(window["ok"] for window in output.response_time if "ok" in window)
    return float(merged.get_max_value() / 1e6)
