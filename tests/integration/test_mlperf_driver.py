"""``--driver loadgen`` and our own engine on one server of known service times."""

from __future__ import annotations

import time

import numpy as np
import pytest

from loadtest.analysis import percentiles_ms, samples_of
from loadtest.trial import LevelOutput
from tests.integration.test_generator import Bench, bench, p

pytest.importorskip("mlperf_loadgen")
__all__ = ["bench"]

AGREE = 0.03
TURNS = 3
"""What else a machine does may spoil one turn; a driver that tells wrong times spoils all."""


def true_p90_ms(bench: Bench, output: LevelOutput) -> float:
    """Of the window, by the server's own log; whatever a busy machine did to it is in there."""
    arrived, replied = np.load(bench.folder / "log.npy").T
    began_s = output.window_started_unix_s - (time.time() - time.monotonic())
    inside = (arrived / 1e9 >= began_s) & (arrived / 1e9 < began_s + output.window_s)
    return float(np.quantile((replied - arrived)[inside], 0.9, method="inverted_cdf")) / 1e6


@pytest.mark.parametrize(("scenario", "level"), [("single-stream", 1), ("server", 60)])
@pytest.mark.parametrize("driver", ["locust", "loadgen"])
def test_both_drivers_tell_the_p90_that_the_server_had(
    bench: Bench, driver: str, scenario: str, level: float
) -> None:
    service = ("--distribution", "lognormal", "--mean-ms", "50", "--sigma", "0.3")
    seen = []
    for _ in range(TURNS):
        with bench.truth(*service) as (url, _):
            output = bench.run(url, scenario, level, driver=driver, duration_s=5.0)
        assert output.outcomes["ok"] == output.planned
        told_ms = p(percentiles_ms(samples_of(output.response_time)).p90)
        seen.append(told_ms / true_p90_ms(bench, output))
        if seen[-1] == pytest.approx(1.0, rel=AGREE):
            break
    assert seen[-1] == pytest.approx(1.0, rel=AGREE), seen
    if driver == "loadgen":
        assert (bench.folder / "output.mlperf" / "mlperf_log_summary.txt").is_file()


@pytest.mark.parametrize(
    ("scenario", "level", "given"), [("multi-stream", 8, {}), ("offline", 16, {"requests": "300"})]
)
def test_the_other_scenarios_run(
    bench: Bench, scenario: str, level: float, given: dict[str, str]
) -> None:
    with bench.truth("--distribution", "lognormal", "--mean-ms", "10") as (url, _):
        output = bench.run(url, scenario, level, driver="loadgen", parameters=given, duration_s=3.0)
    assert output.outcomes["ok"] == output.planned
    assert output.planned >= (300 if scenario == "offline" else 100)
