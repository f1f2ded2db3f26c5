"""The page in a real browser: it draws, fits, can be read, and asks nobody for anything."""

from __future__ import annotations

import base64
import json
import shutil
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from selenium import webdriver
from selenium.webdriver.common.by import By
from selenium.webdriver.support.ui import WebDriverWait

from loadtest.report.page import render
from loadtest.results import Summary
from loadtest.summary import write_summary
from tests import sample_report as made
from tests import sample_served

BROWSER = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("chrome")
DRIVER = shutil.which("chromedriver")
ARGUMENTS = (
    *("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
)
NASTY = '</script><img src=x onerror="window.harmed=1"><b>bold</b>&amp;\'|`${1}'
LONG = "remote:http://a-host-with-a-rather-long-name.example.internal:8000/and/a/path"
SCREENS = {"desktop": (1280, "light"), "phone": (390, "dark")}

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
    """An incomplete sweep whose user chose names to harm it."""
    text = made.summary(complete=False).model_dump_json()
    for name, wicked in (("triton", NASTY), ("fastapi", LONG), ("image_classifier", NASTY)):
        text = text.replace(json.dumps(name), json.dumps(wicked))
    path = tmp_path_factory.mktemp("page") / "report.html"
    path.write_text(render(Summary.model_validate_json(text)), encoding="utf-8")
    return path


@pytest.fixture(scope="module", params=SCREENS)
def shown(browser: webdriver.Chrome, page: Path, request: pytest.FixtureRequest) -> Any:
    """The page on a screen, loaded once for all that only looks at it."""
    width, scheme = SCREENS[request.param]
    show(browser, page, width=width, scheme=scheme)
    return browser


def show(browser: webdriver.Chrome, page: Path, *, width: int, scheme: str = "light") -> None:
    """Load the page afresh and wait until its figures are drawn."""
    emulate(browser, scheme)
    screen = {"width": width, "height": 850, "deviceScaleFactor": 1, "mobile": width < 600}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", screen)
    browser.get(page.as_uri())
    drawn = "document.documentElement.dataset.drawn"
    WebDriverWait(browser, 60, 0.05).until(lambda b: run(b, drawn))


def emulate(browser: webdriver.Chrome, scheme: str, media: str = "") -> None:
    features = [{"name": "prefers-color-scheme", "value": scheme}]
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": media, "features": features})


def run(browser: webdriver.Chrome, script: str) -> Any:
    return browser.execute_script(f"return {script}")


def test_it_asks_nobody_and_nothing_goes_wrong(shown: webdriver.Chrome) -> None:
    assert shown.get_log("browser") == []
    assert run(shown, "performance.getEntriesByType('resource').map(e => e.name)") == []


def test_it_fits_without_scrolling_sideways(shown: webdriver.Chrome) -> None:
    assert run(shown, "document.documentElement.scrollWidth <= innerWidth")


def test_every_figure_is_drawn(shown: webdriver.Chrome) -> None:
    marks = {
        "latency-load": ".point",
        "spectrum": ".scatterlayer .js-line",
        "heatmap": ".hm image",
        "latency-percentiles": ".point",
        "throughput-level": ".point",
        "energy": ".point",
    }
    assert run(shown, "[...document.querySelectorAll('.plot')].map(p => p.id)") == [*marks]
    found = [
        run(shown, f"document.querySelectorAll('#{plot} {mark}').length")
        for plot, mark in marks.items()
    ]
    # 11 of 12 points have samples for a p95, and one of those lacks its p99. Each spectrum has a
    # solid and a dotted part. Energy is known of one backend's four points.
    assert found == [11, 3 * 2, 3, 4 * 11 - 1, 12, 4]
    assert run(shown, "document.querySelectorAll('.main-svg').length") >= len(marks)


def test_names_that_users_chose_are_shown_letter_by_letter(shown: webdriver.Chrome) -> None:
    assert run(shown, "window.harmed") is None
    assert run(shown, "document.querySelectorAll('img, b:not(.why b)').length") == 0
    name = "[...document.querySelectorAll('#ranking tbody th')].map(th => th.textContent)"
    assert {NASTY, LONG} <= set(run(shown, name))
    legend = "document.querySelector('#latency-load .legendtext').textContent"
    assert run(shown, legend) == NASTY


FAINT = """(() => {
  const parts = (text) => text.match(/[\\d.]+/g).map(Number);
  const light = ([r, g, b]) => [r, g, b]
    .map((v) => v / 255).map((v) => v <= .04045 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4)
    .reduce((sum, v, i) => sum + v * [.2126, .7152, .0722][i], 0);
  const behind = (element) => {
    for (let at = element; at; at = at.parentElement) {
      const colour = parts(getComputedStyle(at).backgroundColor);
      if (colour.length === 3 || colour[3] === 1) return colour;
    }
    return [255, 255, 255];
  };
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  const faint = [];
  while (walker.nextNode()) {
    const element = walker.currentNode.parentElement, style = getComputedStyle(element);
    if (!walker.currentNode.data.trim() || !element.checkVisibility()) continue;
    if (element.closest("script, style, noscript")) continue;
    const ink = parts(element.closest("svg") ? style.fill : style.color);
    const [high, low] = [light(ink), light(behind(element))].sort((a, b) => b - a);
    const ratio = (high + .05) / (low + .05);
    if (ratio < 4.5) faint.push([ratio.toFixed(2), walker.currentNode.data.slice(0, 40)]);
  }
  return faint;
})()"""


def test_all_text_stands_out_from_what_is_behind_it(shown: webdriver.Chrome) -> None:
    """By WCAG 2.2, 1.4.3: a contrast of 4.5."""
    assert run(shown, FAINT) == []


def having(selector: str, condition: str = "true") -> str:
    """A script: elements for which the condition on ``e`` is true."""
    return f"[...document.querySelectorAll(`{selector}`)].filter(e => {condition})"


FAULTS = (
    having("table:not(:has(> caption))"),
    having("th:not([scope])"),
    having(".plot:not([role=img][aria-label])"),
    having("[role=region]:not([aria-label])"),
    having("button, a, summary", "!e.textContent.trim()"),
    having("[aria-labelledby]", "!document.getElementById(e.getAttribute('aria-labelledby'))"),
    having("a[href^='#']", "!document.getElementById(e.hash.slice(1))"),
    having("[id]", "!e.closest('svg') && document.querySelectorAll(`[id='${e.id}']`).length > 1"),
    # What scrolls can be scrolled by keys.
    having(".scroll, pre", "e.tabIndex < 0"),
)


def test_a_screen_reader_finds_its_way(shown: webdriver.Chrome) -> None:
    levels = run(shown, "[...document.querySelectorAll('h1,h2,h3,h4')].map(h => +h.tagName[1])")
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(after - before <= 1 for before, after in pairwise(levels))
    marks = "['header', 'nav', 'main', 'footer'].map(m => document.querySelectorAll(m).length)"
    assert run(shown, marks) == [1, 1, 1, 1]
    assert run(shown, "document.documentElement.lang") == "en"
    for fault in FAULTS:
        assert run(shown, f"{fault}.map(e => e.outerHTML.slice(0, 80))") == [], fault
    names = run(shown, "[...document.querySelectorAll('button')].map(b => b.textContent)")
    assert len(set(names)) == len(names)


def test_figures_follow_the_scheme(browser: webdriver.Chrome, page: Path) -> None:
    colour = "getComputedStyle(document.querySelector('.plot .xtick text')).fill"
    show(browser, page, width=1280, scheme="light")
    light = run(browser, colour)
    emulate(browser, "dark")
    WebDriverWait(browser, 10, 0.05).until(lambda b: run(b, colour) != light)
    assert run(browser, "getComputedStyle(document.body).color") == run(browser, colour)


def test_every_button_copies_what_stands_beside_it(browser: webdriver.Chrome, page: Path) -> None:
    show(browser, page, width=1280)
    browser.execute_cdp_cmd(
        "Browser.grantPermissions",
        {"permissions": ["clipboardReadWrite", "clipboardSanitizedWrite"]},
    )
    buttons = browser.find_elements(By.CSS_SELECTOR, "button[data-copies]")
    assert len(buttons) == 3
    for button in buttons:
        browser.execute_script("arguments[0].scrollIntoView({behavior: 'instant'})", button)
        button.click()
        WebDriverWait(browser, 10, 0.05).until(lambda _, b=button: b.text == "Copied")
        script = "navigator.clipboard.readText().then(arguments[arguments.length - 1])"
        source = button.get_attribute("data-copies")
        kept = run(browser, f"document.getElementById('{source}').textContent")
        assert browser.execute_async_script(script) == kept
    assert made.CONFIGURATION.splitlines()[1] in run(
        browser, "document.getElementById('config-1').textContent"
    )


def test_paper_shows_all_in_black_on_white(browser: webdriver.Chrome, page: Path) -> None:
    show(browser, page, width=1280, scheme="dark")
    pdf = browser.execute_cdp_cmd("Page.printToPDF", {"preferCSSPageSize": True})
    assert base64.b64decode(pdf["data"]).startswith(b"%PDF")
    opened = "[...document.querySelectorAll('details:not(.long)')].map(d => d.open)"
    assert set(run(browser, opened)) == {True}
    emulate(browser, "dark", "print")
    black = "getComputedStyle(document.body).backgroundColor"
    assert run(browser, black) == "rgb(255, 255, 255)"
    hidden = "[...document.querySelectorAll('nav, button')].every(e => !e.checkVisibility())"
    assert run(browser, hidden)
    # A4 on its side; what is wider would be shrunk with all the rest.
    paper = {"width": 1032, "height": 718, "deviceScaleFactor": 1, "mobile": False}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", paper)
    fits = "document.documentElement.scrollWidth <= innerWidth"
    WebDriverWait(browser, 10, 0.05).until(lambda b: run(b, fits))


def test_without_scripts_the_numbers_are_still_there(browser: webdriver.Chrome, page: Path) -> None:
    emulate(browser, "light")
    browser.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": True})
    try:
        browser.get(page.as_uri())
        told = browser.find_element(By.CSS_SELECTOR, "noscript").text
        table = browser.find_element(By.CSS_SELECTOR, "#points table").text
    finally:
        browser.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": False})
    assert "All their numbers are in the tables" in told
    assert "INVALID" in table


def test_searches_are_drawn_and_fit_a_phone(browser: webdriver.Chrome, tmp_path: Path) -> None:
    servers = {name: sample_served.SERVERS[name] for name in ("triton", "onnxruntime")}
    folder = sample_served.search(
        tmp_path / "out", repeats=2, servers=servers, objectives=("p90<=15ms",), duration_s=3.0
    )
    summary = write_summary(folder)
    folder.report.write_text(render(summary), encoding="utf-8")
    show(browser, folder.report, width=390, scheme="dark")
    assert browser.get_log("browser") == []
    assert run(browser, "document.documentElement.scrollWidth <= innerWidth")
    plots = run(browser, "[...document.querySelectorAll('.plot')].map(p => p.id)")
    assert {"latency-load", "search-1", "search-2"} <= set(plots)
    drawn = "[...document.querySelectorAll('.plot')].every(p => p.querySelector('.main-svg'))"
    assert run(browser, drawn)
    probes = sum(len(search.probes) for search in summary.searches)
    rows = "document.querySelectorAll('#search details tbody th.number').length"
    assert run(browser, rows) == probes
    assert run(browser, FAINT) == []
