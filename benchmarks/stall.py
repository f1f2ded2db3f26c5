"""One stall of a server, seen by an open and by a closed loop: the figure in docs/methodology.md.

``python -m benchmarks.stall`` loads a server of 5 ms for ten seconds by each scenario, stops it for
two seconds meanwhile, and draws what each reports.
"""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
import threading
import time
from pathlib import Path

import plotly.graph_objects as go
from plotly.subplots import make_subplots
from selenium import webdriver

from benchmarks.load import Bench, truth_server
from loadtest.analysis import samples_of
from loadtest.confidence import Samples
from loadtest.histogram import merge
from loadtest.payload import write_payloads
from loadtest.prepare import payloads_from
from loadtest.trial import LevelOutput
from serving.parity import reference_for
from tests.sample_models import write_tiny

IMAGE = Path(__file__).parents[1] / "docs" / "images" / "stall.png"
WINDOW_S, STALL_S, AFTER_S = 10.0, 2.0, 6.0
LOADS = {
    "open loop: constant, 50 requests/s": ("constant", 50.0, "#0077bb"),
    "closed loop: one user": ("closed", 1.0, "#dd6b20"),
}
SHARES = [i / 1000 for i in range(5, 1000, 5)] + [0.998]
SIZE = (1100, 460)


def measure(bench: Bench, scenario: str, level: float) -> LevelOutput:
    """One window with the stall inside it."""
    log = bench.folder / "truth.npy"
    serial = ("--mean-ms", "5", "--serial")
    with truth_server(bench, "constant", serial, log) as (url, pid):
        started = bench.folder / "output.spec.json"

        def stall() -> None:
            while not started.exists():
                time.sleep(0.02)
            time.sleep(AFTER_S)
            os.kill(pid, signal.SIGSTOP)
            time.sleep(STALL_S)
            os.kill(pid, signal.SIGCONT)

        thread = threading.Thread(target=stall)
        thread.start()
        output = bench.ours(url, scenario, level, seconds=WINDOW_S)
        thread.join()
    return output


def draw(found: dict[str, LevelOutput]) -> go.Figure:
    """Left: the slowest request of each second; right: every percentile."""
    figure = make_subplots(
        rows=1,
        cols=2,
        subplot_titles=("Slowest request due in each second", "Response time at each percentile"),
        horizontal_spacing=0.09,
    )
    for name, output in found.items():
        samples = samples_of(output.response_time)
        line = {"color": LOADS[name][2], "width": 2.5}
        slowest = [
            merge(window.values()).get_max_value() / 1e6 if window else None
            for window in output.response_time
        ]
        p99 = _at(samples, 0.99)
        label = f"{name}: {samples.count:,} samples, p99 {p99:,.0f} ms"
        figure.add_scatter(
            x=list(range(len(slowest))), y=slowest, name=label, line=line, row=1, col=1
        )
        figure.add_scatter(
            x=[100 * share for share in SHARES],
            y=[_at(samples, share) for share in SHARES],
            line=line,
            showlegend=False,
            row=1,
            col=2,
        )
    figure.update_yaxes(type="log", title="ms (log scale)", tickvals=[1, 10, 100, 1000], col=1)
    figure.update_yaxes(type="log", tickvals=[1, 10, 100, 1000], col=2)
    figure.update_xaxes(title="second of the window", col=1)
    figure.update_xaxes(title="percentile", ticksuffix="%", col=2)
    figure.update_layout(
        template="plotly_white",
        width=SIZE[0],
        height=SIZE[1],
        margin={"l": 60, "r": 20, "t": 90, "b": 50},
        legend={"orientation": "h", "x": 0, "y": 1.24},
    )
    return figure


def _at(samples: Samples, share: float) -> float:
    return samples.at_rank(max(round(share * samples.count), 1)) / 1e6


def photograph(figure: go.Figure) -> None:
    """Write the figure as a browser shows it."""
    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium") or ""
    for argument in ("--headless=new", "--no-sandbox", "--hide-scrollbars"):
        options.add_argument(argument)
    with tempfile.TemporaryDirectory() as folder:
        page = Path(folder) / "stall.html"
        figure.write_html(page, config={"displayModeBar": False})
        browser = webdriver.Chrome(options, webdriver.ChromeService(shutil.which("chromedriver")))
        try:
            browser.set_window_size(SIZE[0] + 20, SIZE[1] + 160)
            browser.get(page.as_uri())
            time.sleep(1.0)
            browser.find_element("css selector", ".plotly-graph-div").screenshot(str(IMAGE))
        finally:
            browser.quit()


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="infersweep-bench-") as name:
        folder = Path(name)
        model = write_tiny(folder / "models")
        payload = payloads_from(model, reference_for(model))[0]
        write_payloads(folder / "payloads", [payload])
        bench = Bench(model, payload, folder, turns=1, seconds=WINDOW_S)
        found = {
            label: measure(bench, scenario, level) for label, (scenario, level, _) in LOADS.items()
        }
    photograph(draw(found))
    print(f"wrote {IMAGE}")


if __name__ == "__main__":
    main()
