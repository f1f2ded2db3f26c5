"""``--driver loadgen`` and our own engine on one server of known service times."""

from __future__ import annotations

import pytest

from loadtest.analysis import percentiles_ms, samples_of
from tests.integration.test_generator import Bench, bench, p

pytest.importorskip("mlperf_loadgen")
__all__ = ["bench"]

AGREE = 0.03


@pytest.mark.parametrize(("scenario", "level"), [("single-stream", 1), ("server", 60)])
def test_both_drivers_agree_on_p90(bench: Bench, scenario: str, level: float) -> None:
    found = {}
    service = ("--distribution", "lognormal", "--mean-ms", "20", "--sigma", "0.1")
    for driver in ("locust", "loadgen"):
        with bench.truth(*service) as (url, _):
            output = bench.run(url, scenario, level, driver=driver, duration_s=8.0)
        assert output.outcomes["ok"] == output.planned
        found[driver] = p(percentiles_ms(samples_of(output.response_time)).p90)
    assert found["loadgen"] == pytest.approx(found["locust"], rel=AGREE)
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
