"""A short sweep under Prometheus, and pictures of the four dashboards: ``make observe-demo``."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from benchmarks.pictures import Drawn, render
from loadtest.dashboards.queries import Answer, Span, ask
from loadtest.dashboards.rules import rules_for
from loadtest.folder import ResultsFolder
from loadtest.observing.ask import Prometheus
from loadtest.observing.grafana import GRAFANA_FOLDER
from loadtest.observing.prometheus import Watching, watched
from loadtest.targets import FOLDER_VARIABLE
from serving.errors import LoadError
from serving.process import free_port

DASHBOARDS = ("sweep", "server", "resources", "generator")
SCRAPE_INTERVAL_S = 1.0
_SETTLE_S = 3.0


@dataclass(frozen=True)
class Seen:
    """A sweep that a Prometheus has scraped to its end.

    Attributes:
        start_s, end_s: Unix times around it.
    """

    run: ResultsFolder
    start_s: float
    end_s: float

    @property
    def chosen(self) -> dict[str, str]:
        """Variables of the dashboards."""
        return {"run": self.run.path.name}

    @property
    def span(self) -> Span:
        return Span(self.start_s, self.end_s, SCRAPE_INTERVAL_S, SCRAPE_INTERVAL_S)


def watching(data: Path) -> Watching:
    return Watching(data, rules_for(SCRAPE_INTERVAL_S), free_port(), SCRAPE_INTERVAL_S)


def dashboard(name: str) -> Path:
    return GRAFANA_FOLDER / "dashboards" / f"{name}.json"


def sweep_under(
    out: Path, targets: Path, arguments: list[str], accepted: tuple[int, ...] = (0,)
) -> Seen:
    """Run ``infersweep compare`` so that whoever watches ``targets`` sees it.

    ``accepted`` are the exit codes to go on with.

    Raises:
        LoadError: it did not end well.
    """
    command = [str(Path(sys.executable).with_name("infersweep")), "compare", *arguments]
    start_s = time.time()
    ended = subprocess.run(
        [*command, "--out", str(out)],
        env={**os.environ, FOLDER_VARIABLE: str(targets)},
        check=False,
    )
    if ended.returncode not in accepted:
        raise LoadError(f"the sweep exited with {ended.returncode}", hint="Its words are above.")
    # Rules are evaluated once more on the last scrape.
    time.sleep(_SETTLE_S)
    return Seen(ResultsFolder(out), start_s, time.time())


def answers(prometheus: str, seen: Seen, name: str) -> list[Answer]:
    """What every query of a dashboard brings."""
    told = json.loads(dashboard(name).read_text(encoding="utf-8"))
    return list(ask(Prometheus(prometheus), told, seen.span, seen.chosen))


def draw(prometheus: str, seen: Seen, name: str, out: Path) -> Drawn:
    """Its picture, over the time of the sweep."""
    return render(
        dashboard(name),
        prometheus,
        seen.start_s,
        seen.end_s,
        seen.chosen,
        out,
        scrape_interval_s=SCRAPE_INTERVAL_S,
    )


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.observe_demo", description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("results") / "observe-demo")
    parser.add_argument("--model", default="image_classifier")
    parser.add_argument("--slo", default="50ms")
    asked = parser.parse_args()
    console = Console()
    run = asked.out / f"{time.strftime('%Y%m%d-%H%M%S')}-{asked.model}"
    # Long enough for a few scrapes in each window.
    arguments = ["--model", asked.model, "--slo", asked.slo, "--concurrency", "1,2,4"]
    arguments += ["--duration", "8", "--repeats", "1"]
    with tempfile.TemporaryDirectory(prefix="infersweep-observe-") as scratch:
        how = watching(asked.out / "prometheus")
        targets = Path(scratch)
        os.environ[FOLDER_VARIABLE] = scratch
        with watched(how):
            console.print(f"Prometheus: {how.url}", highlight=False)
            seen = sweep_under(run, targets, arguments)
            drawn = {}
            for name in DASHBOARDS:
                console.print(f"drawing {name}")
                drawn[name] = draw(how.url, seen, name, asked.out / f"{name}.png")
    for one in drawn.values():
        console.print(
            f"{one.picture}: {len(one.with_data)} of {len(one.panels)} panels with data, "
            f"{len(one.all_errors)} errors",
            highlight=False,
        )
        for error in one.all_errors:
            console.print(f"  {error}", style="red", markup=False)
    return 1 if any(one.all_errors for one in drawn.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
