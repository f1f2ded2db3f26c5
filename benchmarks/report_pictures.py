"""Pictures of a report, or of any other page that draws with the report's script."""

from __future__ import annotations

import argparse
import base64
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.pictures import chromium
from serving.errors import InfersweepError, UsageError

if TYPE_CHECKING:
    from selenium.webdriver import Chrome

_DRAWN_S = 60
_MARGIN_PX = 16
_BOX = """
const found = arguments[0].map((one) => document.querySelector(one));
const missing = arguments[0].find((_, place) => !found[place]);
if (missing) return missing;
const boxes = found.map((one) => (one.closest("figure") || one).getBoundingClientRect());
return [Math.min(...boxes.map((b) => b.top)), Math.max(...boxes.map((b) => b.bottom))];
"""


def render(
    page: Path, out: Path, *, parts: Sequence[str], width: int = 1280, dark: bool = False
) -> None:
    """Draw from the first to the last of ``parts`` (CSS selectors), ``width`` pixels wide.

    Raises:
        MachineError: Chromium or its driver is missing.
        UsageError: the page is none, or has no such part.
    """
    if not page.is_file():
        raise UsageError(f"{page} is no file", hint="Give the report.html of a results folder.")
    with chromium() as browser:
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [scheme]})
        screen = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 600}
        browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", screen)
        # Not scrolled, so that boxes are counted from the top of the page.
        browser.get(page.absolute().as_uri())
        _wait(browser)
        box = browser.execute_script(_BOX, list(parts))
        if isinstance(box, str):
            raise UsageError(f"{page} has no {box}", hint="Name an element by its selector.")
        top, bottom = box
        start = max(top - _MARGIN_PX, 0)
        clip = {"x": 0, "y": start, "width": width, "height": bottom + _MARGIN_PX - start}
        whole = {"format": "png", "captureBeyondViewport": True, "clip": {**clip, "scale": 1}}
        picture = browser.execute_cdp_cmd("Page.captureScreenshot", whole)
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_bytes(base64.b64decode(picture["data"]))


def _wait(browser: Chrome) -> None:
    """Until every figure is drawn."""
    from selenium.webdriver.support.ui import WebDriverWait  # noqa: PLC0415

    drawn = "return document.documentElement.dataset.drawn"
    WebDriverWait(browser, _DRAWN_S, 0.1).until(lambda b: b.execute_script(drawn) is not None)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.report_pictures")
    parser.add_argument("page", type=Path)
    parser.add_argument("--parts", default="header,footer", metavar="SELECTOR,SELECTOR")
    parser.add_argument("--width", type=int, default=1280, metavar="PIXELS")
    parser.add_argument("--dark", action="store_true")
    parser.add_argument("--out", type=Path, required=True, metavar="PNG")
    asked = parser.parse_args(arguments)
    try:
        render(
            asked.page,
            asked.out,
            parts=asked.parts.split(","),
            width=asked.width,
            dark=asked.dark,
        )
    except InfersweepError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
