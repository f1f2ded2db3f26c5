"""The page of a plan in a real browser: it draws, fits a small phone, and can be read."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from selenium import webdriver

from benchmarks.pictures import chromium
from loadtest.plan.page import NAME, write_page
from tests import sample_plan as made
from tests.e2e.test_report_page import FAINT, FAULTS, emulate, run, show

if not shutil.which("chromedriver"):
    pytest.skip("chromedriver is not installed", allow_module_level=True)

FITS = "document.documentElement.scrollWidth <= innerWidth"


@pytest.fixture(scope="module")
def browser() -> Iterator[webdriver.Chrome]:
    with chromium() as found:
        yield found


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_page(tmp_path_factory.mktemp("plan") / NAME, made.plan())


@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (360, "dark")])
def test_it_draws_fits_and_can_be_read(
    browser: webdriver.Chrome, page: Path, width: int, scheme: str
) -> None:
    show(browser, page, width=width, scheme=scheme)
    assert browser.get_log("browser") == []
    assert run(browser, "performance.getEntriesByType('resource').map(e => e.name)") == []
    assert run(browser, FITS)
    marks = "document.querySelectorAll('#{} .{}').length"
    fleet = sum(len(option.fleet) for option in made.plan().options)
    stars = sum(option.replicas is not None for option in made.plan().options)
    assert run(browser, marks.format("fleet", "point")) == fleet + stars
    tested = sum(one.percentile == "p99" for one in made.verifications())
    assert run(browser, marks.format("curve", "point")) == tested + stars
    assert run(browser, marks.format("stress", "point")) == 3 + 2, "one cannot keep up"
    assert run(browser, FAINT) == []
    for fault in FAULTS:
        assert run(browser, f"{fault}.map(e => e.outerHTML.slice(0, 80))") == [], fault


def test_it_fits_a_sheet_of_paper(browser: webdriver.Chrome, page: Path) -> None:
    """A4 on its side."""
    show(browser, page, width=1032, scheme="dark")
    emulate(browser, "dark", "print")
    assert run(browser, FITS)
    assert run(browser, "getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    too_wide = "[...document.querySelectorAll('.scroll')].filter(e => e.scrollWidth > innerWidth)"
    assert run(browser, f"{too_wide}.length") == 0
