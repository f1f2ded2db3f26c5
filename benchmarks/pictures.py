"""Pictures of Grafana's dashboards without a Grafana server.

Grafana's own packages draw a dashboard's JSON in headless Chromium, with data from a Prometheus.
What is Grafana's and what is ours is in ``docs/pictures.md``.
"""

from __future__ import annotations

import argparse
import base64
import json
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from benchmarks.picture_page import served
from loadtest.observing.ask import Prometheus
from loadtest.observing.configuration import duration
from serving.errors import InfersweepError, MachineError, ServerError, UsageError

if TYPE_CHECKING:
    from selenium.webdriver import Chrome

SOURCE = Path(__file__).parents[1] / "grafana" / "provisioning" / "datasources" / "prometheus.yml"

_DRAWN_S = 60
# Grafana's grid: cells of 30 px with 8 px between; above it stand variables and the time range.
_CELL_PX = 38
_ABOVE_PX = 150
_BELOW_PX = 16
_CHROMIUM = ("chromium", "chromium-browser", "google-chrome", "chrome")
_ARGUMENTS = (
    *("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
    *("--hide-scrollbars", "--force-color-profile=srgb", "--disable-dev-shm-usage"),
)


@dataclass(frozen=True)
class Panel:
    """What one panel shows.

    Attributes:
        series: frames that its queries brought.
        values: in those frames: numbers, and the texts of a table.
        inked: a canvas of it has a point in a colour; axes are grey.
        text: all that can be read in it, without its title.
        errors: what Prometheus, or the drawing, complained of.
    """

    number: int
    title: str
    kind: str
    series: int
    values: int
    inked: bool
    legend: tuple[str, ...]
    text: str
    errors: tuple[str, ...]

    @property
    def is_drawn(self) -> bool:
        return self.inked or bool(self.text.strip())

    @property
    def has_data(self) -> bool:
        return self.values > 0


@dataclass(frozen=True)
class Drawn:
    """A picture of a dashboard, and what is in it.

    Attributes:
        errors: of variables and other parts that are no panel.
        console: what the browser logged as an error.
    """

    picture: Path
    panels: tuple[Panel, ...]
    errors: tuple[str, ...]
    console: tuple[str, ...]

    @property
    def with_data(self) -> tuple[Panel, ...]:
        return tuple(panel for panel in self.panels if panel.has_data)

    @property
    def all_errors(self) -> tuple[str, ...]:
        """One line each, with the panel that it stands in."""
        of_panels = [f"{p.title}: {error}" for p in self.panels for error in p.errors]
        return (*of_panels, *self.errors, *self.console)

    def panel(self, title: str) -> Panel:
        return next(panel for panel in self.panels if panel.title == title)


def render(
    dashboard: Path,
    prometheus: str,
    start_s: float,
    end_s: float,
    variables: Mapping[str, str | Sequence[str]],
    out: Path,
    *,
    width: int = 1600,
    scrape_interval_s: float | None = None,
) -> Drawn:
    """Draw ``dashboard`` over a time range into the PNG ``out``, ``width`` pixels wide.

    Args:
        dashboard: file of its JSON.
        prometheus: address of its HTTP API.
        start_s: Unix time, as ``end_s``.
        end_s: Unix time.
        variables: values by the name of a variable, instead of the dashboard's own.
        scrape_interval_s: of that Prometheus, instead of the one in ``grafana/provisioning``.
        out: written over.
        width: of the browser's window; the height is the dashboard's.

    Raises:
        MachineError: Node.js, npm, Chromium or its driver is missing.
        FetchError: a package could not be fetched.
        ServerError: Prometheus does not answer, or the page did not come to an end.
        UsageError: the dashboard cannot be read, or has a part that is not drawn here.
    """
    settings = {
        "dashboard": _read(dashboard),
        "start": start_s,
        "end": end_s,
        "variables": {name: _plain(value) for name, value in variables.items()},
        "source": _source(scrape_interval_s),
    }
    _require_ready(prometheus)
    with chromium() as browser, served(settings, prometheus) as url:
        # As high as all panels from the start: a change of size would draw them anew.
        height = _ABOVE_PX + _CELL_PX * _rows(settings["dashboard"])
        screen = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", screen)
        browser.get(url)
        found = _wait(browser, dashboard)
        shown = min(height, found["bottom"] + _BELOW_PX)
        clip = {"x": 0, "y": 0, "width": width, "height": shown, "scale": 1}
        whole = {"format": "png", "clip": clip}
        picture = browser.execute_cdp_cmd("Page.captureScreenshot", whole)
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_bytes(base64.b64decode(picture["data"]))
        console = _console(browser)
    return Drawn(out, tuple(map(_panel, found["panels"])), tuple(found["errors"]), console)


def _wait(browser: Chrome, dashboard: Path) -> dict[str, Any]:
    """What the page says of itself, when it is drawn."""
    from selenium.common.exceptions import TimeoutException  # noqa: PLC0415
    from selenium.webdriver.support.ui import WebDriverWait  # noqa: PLC0415

    try:
        found = WebDriverWait(browser, _DRAWN_S, 0.1).until(
            lambda b: b.execute_script("return window.drawn")
        )
    except TimeoutException:
        waiting = browser.execute_script("return window.waitedFor?.()") or _console(browser)
        raise ServerError(
            f"{dashboard.name} was not drawn within {_DRAWN_S} s; missing: {', '.join(waiting)}",
            hint="Ask Prometheus for these panels' queries by hand.",
        ) from None
    if "failure" in found:
        raise UsageError(
            f"{dashboard.name} cannot be drawn: {found['failure']}",
            hint="What can be drawn is in docs/pictures.md.",
        )
    return found


@contextmanager
def chromium() -> Iterator[Chrome]:
    """A browser without a screen, which asks nobody on its own.

    Raises:
        MachineError: it, its driver or Selenium is missing.
    """
    try:
        from selenium import webdriver  # noqa: PLC0415
    except ImportError:
        raise MachineError(
            "Selenium is not installed, which pictures are taken with",
            hint="Run `pip install -e .[dev]`.",
        ) from None
    found = next(filter(None, map(shutil.which, _CHROMIUM)), None)
    driver = shutil.which("chromedriver")
    if not found or not driver:
        raise MachineError(
            f"{'chromedriver' if found else 'Chromium'} was not found, which draws dashboards",
            hint="On Debian or Ubuntu: `apt-get install chromium chromium-driver`.",
        )
    options = webdriver.ChromeOptions()
    options.binary_location = found
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    with tempfile.TemporaryDirectory(prefix="infersweep-pictures-") as profile:
        for argument in (*_ARGUMENTS, f"--user-data-dir={profile}"):
            options.add_argument(argument)
        browser = webdriver.Chrome(options, webdriver.ChromeService(driver))
        try:
            yield browser
        finally:
            browser.quit()


def _console(browser: Chrome) -> tuple[str, ...]:
    """Errors in the log; a refused query stands in its panel already."""
    lines = [line for line in browser.get_log("browser") if line["level"] == "SEVERE"]
    own = [line["message"] for line in lines if line["source"] != "network"]
    return tuple(message.splitlines()[0] for message in own)


def _panel(found: Mapping[str, Any]) -> Panel:
    return Panel(
        number=found["id"],
        title=found["title"],
        kind=found["type"],
        series=found["series"],
        values=found["values"],
        inked=found["inked"],
        legend=tuple(found["legend"]),
        text=found["text"],
        errors=tuple(found["errors"]),
    )


def _plain(value: str | Sequence[str]) -> str | list[str]:
    return value if isinstance(value, str) else list(value)


def _read(dashboard: Path) -> Any:
    try:
        return json.loads(dashboard.read_bytes())
    except (OSError, ValueError) as error:
        raise UsageError(
            f"{dashboard} is no dashboard: {error}", hint="Give the JSON file of one."
        ) from error


def _rows(dashboard: Mapping[str, Any]) -> int:
    """How many cells of the grid the panels reach down."""
    ends = [panel["gridPos"] for panel in dashboard.get("panels", ())]
    return max((place["y"] + place["h"] for place in ends), default=0)


def _source(scrape_interval_s: float | None) -> dict[str, str]:
    """The data source as it is provisioned for a Grafana server."""
    (source,) = yaml.safe_load(SOURCE.read_text(encoding="utf-8"))["datasources"]
    provisioned = source["jsonData"]["timeInterval"]
    interval = duration(scrape_interval_s) if scrape_interval_s else provisioned
    return {"uid": source["uid"], "name": source["name"], "scrapeInterval": interval}


def _require_ready(address: str) -> None:
    if not Prometheus(address.rstrip("/")).ready():
        raise ServerError(
            f"Prometheus is not ready at {address}", hint="Start it, or name another."
        )


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.pictures", description=__doc__)
    parser.add_argument("dashboard", type=Path)
    parser.add_argument("--prometheus", default="http://127.0.0.1:9090", metavar="URL")
    parser.add_argument("--start", type=float, required=True, metavar="UNIX_S")
    parser.add_argument("--end", type=float, required=True, metavar="UNIX_S")
    parser.add_argument("--variable", action="append", default=[], metavar="NAME=VALUE")
    parser.add_argument("--out", type=Path, required=True, metavar="PNG")
    parser.add_argument("--width", type=int, default=1600, metavar="PIXELS")
    asked = parser.parse_args(arguments)
    variables = dict(each.split("=", 1) for each in asked.variable)
    try:
        drawn = render(
            *(asked.dashboard, asked.prometheus, asked.start, asked.end, variables, asked.out),
            width=asked.width,
        )
    except InfersweepError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    for panel in drawn.panels:
        print(f"{panel.title}: {panel.kind}, {panel.series} series, {panel.values} values")
    for complaint in drawn.all_errors:
        print(complaint, file=sys.stderr)
    return 1 if drawn.all_errors else 0


if __name__ == "__main__":
    sys.exit(main())
