"""The page in a real browser: it draws, it fits, and it asks nobody for anything."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from selenium import webdriver
from selenium.webdriver.common.by import By
from selenium.webdriver.support.ui import WebDriverWait

from loadtest.report.page import render
from tests import sample_report as made

BROWSER = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("chrome")
DRIVER = shutil.which("chromedriver")
ARGUMENTS = (
    *("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
)
PLOTS = ("throughput-latency", "latency-percentiles", "throughput-level")

if not BROWSER and not DRIVER:
    pytest.skip("neither chromium nor chromedriver is installed", allow_module_level=True)


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[webdriver.Chrome]:
    options = webdriver.ChromeOptions()
    options.binary_location = BROWSER or ""
    for argument in ARGUMENTS:
        options.add_argument(argument)
    options.add_argument(f"--user-data-dir={tmp_path_factory.mktemp('profile')}")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options, webdriver.ChromeService(DRIVER))
    yield driver
    driver.quit()


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("page") / "report.html"
    path.write_text(render(made.summary(complete=False)), encoding="utf-8")
    return path


def show(browser: webdriver.Chrome, page: Path, *, width: int, scheme: str = "light") -> None:
    """Load the page afresh and wait until its figures are drawn."""
    features = [{"name": "prefers-color-scheme", "value": scheme}]
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
    screen = {"width": width, "height": 850, "deviceScaleFactor": 1, "mobile": width < 600}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", screen)
    browser.get(page.as_uri())
    drawn = "return document.documentElement.dataset.drawn"
    WebDriverWait(browser, 60).until(lambda b: b.execute_script(drawn) == str(len(PLOTS)))


def run(browser: webdriver.Chrome, script: str) -> Any:
    return browser.execute_script(f"return {script}")


@pytest.mark.parametrize("width", [390, 1280])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_draws_and_fits(browser: webdriver.Chrome, page: Path, width: int, scheme: str) -> None:
    show(browser, page, width=width, scheme=scheme)
    assert browser.get_log("browser") == []
    assert run(browser, "performance.getEntriesByType('resource').map(e => e.name)") == []
    assert run(browser, "document.documentElement.scrollWidth <= innerWidth")
    marks = [run(browser, f"document.querySelectorAll('#{p} .point').length") for p in PLOTS]
    # 11 of 12 points have samples for a p95, and one of them lacks its p99.
    assert marks == [11, 4 * 11 - 1, 12]
    table = browser.find_element(By.CSS_SELECTOR, "table.points")
    assert table.is_displayed()
    assert len(table.find_elements(By.CSS_SELECTOR, ".badge.INVALID")) == 2


def test_figures_follow_the_scheme(browser: webdriver.Chrome, page: Path) -> None:
    colour = "getComputedStyle(document.querySelector('.plot .xtick text')).fill"
    show(browser, page, width=1280, scheme="light")
    light = run(browser, colour)
    dark = [{"name": "prefers-color-scheme", "value": "dark"}]
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": dark})
    WebDriverWait(browser, 10).until(lambda b: run(b, colour) != light)
    assert run(browser, "getComputedStyle(document.body).color") == run(browser, colour)


def test_the_command_can_be_copied(browser: webdriver.Chrome, page: Path) -> None:
    show(browser, page, width=1280)
    button = browser.find_element(By.CSS_SELECTOR, "button[data-copies]")
    browser.execute_script("arguments[0].scrollIntoView({behavior: 'instant'})", button)
    button.click()
    WebDriverWait(browser, 10).until(lambda _: button.text in ("Copied", "Selected"))


def test_every_figure_and_table_has_a_name(browser: webdriver.Chrome, page: Path) -> None:
    show(browser, page, width=1280)
    assert run(browser, "[...document.querySelectorAll('table')].every(t => t.caption)")
    assert run(browser, "[...document.querySelectorAll('th')].every(t => t.scope)")
    assert run(browser, "[...document.querySelectorAll('.plot')].every(p => p.ariaLabel)")
