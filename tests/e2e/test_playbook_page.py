"""The page of a playbook in a real browser: it draws, fits a phone and paper, and can be read."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from selenium import webdriver
from selenium.webdriver.support.ui import WebDriverWait

from benchmarks.pictures import chromium
from loadtest.playbook.page import write_page
from tests import sample_playbook as made
from tests.e2e.test_report_page import FAINT, FAULTS, emulate, run, show

if not shutil.which("chromedriver"):
    pytest.skip("chromedriver is not installed", allow_module_level=True)

WIDTH = "document.documentElement.scrollWidth"
DRAWN = "document.querySelectorAll('.later.js-plotly-plot').length"
PAPER = 1032
"""A4 on its side."""
# Five tips with values, and the combination.
SMALL = 5 + 1


@pytest.fixture(scope="module")
def browser() -> Iterator[webdriver.Chrome]:
    with chromium() as found:
        yield found


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_page(tmp_path_factory.mktemp("playbook"), made.playbook())


def look_at_all(browser: webdriver.Chrome) -> None:
    """Scroll past each small figure, as a reader does."""
    for at in range(SMALL):
        browser.execute_script(
            f"document.querySelectorAll('.later')[{at}].scrollIntoView({{behavior: 'instant'}})"
        )
        WebDriverWait(browser, 20, 0.02).until(
            lambda b, at=at: run(
                b, f"document.querySelectorAll('.later')[{at}].matches('.js-plotly-plot')"
            )
        )


@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (360, "dark")])
def test_it_draws_fits_and_can_be_read(
    browser: webdriver.Chrome, page: Path, width: int, scheme: str
) -> None:
    show(browser, page, width=width, scheme=scheme)
    assert run(browser, DRAWN) < SMALL, "what is far away is not drawn yet"
    look_at_all(browser)
    assert browser.get_log("browser") == []
    assert run(browser, "performance.getEntriesByType('resource').map(e => e.name)") == []
    assert run(browser, WIDTH) <= width
    marks = "document.querySelectorAll('[id=\"{}\"] .point').length"
    assert run(browser, marks.format("forest")) == 5
    # Three repeats and their mean of each arm, and one that does not count.
    assert run(browser, marks.format("tip-fp16-values")) == 3 * (3 + 1)
    assert run(browser, marks.format("tip-allocator-values")) == 2 * (3 + 1) + 1
    assert run(browser, FAINT) == []
    for fault in FAULTS:
        assert run(browser, f"{fault}.map(e => e.outerHTML.slice(0, 80))") == [], fault


def test_paper_has_every_figure_and_fits(browser: webdriver.Chrome, page: Path) -> None:
    show(browser, page, width=PAPER, scheme="dark")
    browser.execute_cdp_cmd("Page.printToPDF", {"preferCSSPageSize": True})
    assert run(browser, DRAWN) == SMALL
    emulate(browser, "dark", "print")
    assert run(browser, WIDTH) <= PAPER
    assert run(browser, "getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    too_wide = "[...document.querySelectorAll('.scroll')].filter(e => e.scrollWidth > innerWidth)"
    assert run(browser, f"{too_wide}.length") == 0
