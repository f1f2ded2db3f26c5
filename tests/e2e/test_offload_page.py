"""The page of onboard against offload in a real browser: it draws, fits, and can be read."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from selenium import webdriver

from benchmarks.pictures import chromium
from loadtest.offload.page import render
from tests.e2e.test_report_page import FAINT, FAULTS, run, show
from tests.sample_offload import record

if not shutil.which("chromedriver"):
    pytest.skip("chromedriver is not installed", allow_module_level=True)


@pytest.fixture(scope="module")
def browser() -> Iterator[webdriver.Chrome]:
    with chromium() as found:
        yield found


@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (360, "dark")])
def test_it_draws_fits_and_can_be_read(
    browser: webdriver.Chrome, tmp_path: Path, width: int, scheme: str
) -> None:
    page = tmp_path / "offload.html"
    found = record()
    page.write_text(render(found))
    show(browser, page, width=width, scheme=scheme)
    assert browser.get_log("browser") == []
    assert run(browser, "performance.getEntriesByType('resource').map(e => e.name)") == []
    assert run(browser, "document.documentElement.scrollWidth <= innerWidth")
    # A line for each way; median and p99 of each repeat.
    assert run(browser, "document.querySelectorAll('#outage .js-line').length") >= 3
    marks = sum(2 * len(side.repeats) for side in found.sides)
    assert run(browser, "document.querySelectorAll('#ages .point').length") == marks
    assert run(browser, FAINT) == []
    for fault in FAULTS:
        assert run(browser, f"{fault}.map(e => e.outerHTML.slice(0, 80))") == [], fault
