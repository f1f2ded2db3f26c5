"""Rules and configuration of Prometheus, by Prometheus's own tool and by what they must hold."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from loadtest.dashboards.alerts import ALERTS
from loadtest.dashboards.files import COMPOSE_INTERVAL_S
from loadtest.dashboards.recording import RECORDED, SCRAPES_IN_A_RATE, rate_window
from loadtest.dashboards.rules import alert_rules, recording_rules
from loadtest.dashboards.triton import LACKS, REASONS, TRITON
from loadtest.metrics import TABLE
from loadtest.observing.configuration import RULE_FILES, duration, render
from serving.statistics import OUTCOMES
from tests.fixtures.lint import SERIES, used

ROOT = Path(__file__).parents[2]
RULES = ROOT / "grafana" / "rules"

needs_promtool = pytest.mark.skipif(shutil.which("promtool") is None, reason="needs promtool")


def _promtool(*arguments: str) -> str:
    done = subprocess.run(("promtool", *arguments), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@needs_promtool
def test_known_series_give_known_series_and_alerts() -> None:
    _promtool("test", "rules", str(RULES / "tests.yml"))


@needs_promtool
@pytest.mark.parametrize("scrape_interval_s", [0.5, 1.0, 5.0])
def test_rules_and_configuration_are_valid_at_any_interval(
    tmp_path: Path, scrape_interval_s: float
) -> None:
    rules = tmp_path / 'ru"les'
    rules.mkdir()
    (rules / "recording.yml").write_text(recording_rules(scrape_interval_s), encoding="utf-8")
    (rules / "alerts.yml").write_text(alert_rules(), encoding="utf-8")
    config = tmp_path / "prometheus.yml"
    config.write_text(render(scrape_interval_s, tmp_path / "a b", rules), encoding="utf-8")
    told = _promtool("check", "config", str(config))
    assert f"{len(RECORDED)} rules found" in told
    assert f"{len(ALERTS)} rules found" in told


def _read(text: str) -> Any:
    return yaml.safe_load(text)


def test_the_compose_stack_and_a_local_run_differ_by_paths_and_interval_alone() -> None:
    compose = _read((ROOT / "grafana" / "prometheus.yml").read_text(encoding="utf-8"))
    local = _read(render(1.0, Path("/t"), Path("/r")))
    assert compose["global"] == {"scrape_interval": "5s", "evaluation_interval": "5s"}
    assert local["global"] == {"scrape_interval": "1s", "evaluation_interval": "1s"}
    assert compose["rule_files"] == [f"/etc/prometheus/rules/{name}" for name in RULE_FILES]
    for text, folder in ((compose, "/etc/prometheus/targets"), (local, "/t")):
        for scraped in text["scrape_configs"]:
            (found,) = scraped.pop("file_sd_configs")
            assert found["files"] == [f"{folder}/*.json"]
    assert compose["scrape_configs"] == local["scrape_configs"]


def test_every_job_is_scraped_once() -> None:
    scraped = _read(render(5.0, Path("/t"), Path("/r")))["scrape_configs"]
    for job in ("server", "generator", "something else"):
        takers = []
        for config in scraped:
            (rule,) = config["relabel_configs"]
            assert rule["source_labels"] == ["job"]
            matches = re.fullmatch(rule["regex"], job) is not None
            if matches == (rule["action"] == "keep"):
                takers.append(config)
        (taker,) = takers
        assert taker.get("honor_labels", False) == (job == "generator")


@pytest.mark.parametrize(
    ("seconds", "text"), [(5.0, "5s"), (1, "1s"), (0.5, "500ms"), (1.5, "1500ms"), (60, "60s")]
)
def test_durations_are_written_as_prometheus_reads_them(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_a_duration_below_a_millisecond_is_refused() -> None:
    with pytest.raises(ValueError, match="millisecond"):
        duration(0.0001)


def test_a_recorded_rate_looks_back_over_four_scrapes() -> None:
    assert SCRAPES_IN_A_RATE == 4
    assert rate_window(COMPOSE_INTERVAL_S) == "20s"
    text = recording_rules(1.0)
    servers = text.partition("infersweep-objective")[0]
    assert set(re.findall(r"\[(\w+)\]", servers)) == {"4s"}


def test_a_rule_names_only_series_that_exist() -> None:
    queries = [series.query("20s") for series in RECORDED] + [alert.query for alert in ALERTS]
    assert {name for query in queries for name in used(query)} <= set(SERIES)


def test_a_recorded_series_has_one_name_and_one_rule() -> None:
    names = [series.name for series in RECORDED]
    assert len(set(names)) == len(names)
    assert len({alert.name for alert in ALERTS}) == len(ALERTS)


def test_every_reason_of_triton_becomes_an_outcome_of_ours() -> None:
    assert set(REASONS.values()) <= set(OUTCOMES)


def test_all_of_triton_that_is_known_is_used_and_what_it_lacks_is_ours() -> None:
    in_rules = {name for series in RECORDED for name in used(series.query("20s"))}
    assert in_rules & set(TRITON) == set(TRITON)
    assert set(LACKS) <= {metric.sample for metric in TABLE}


def test_a_burn_rate_is_the_budget_times_its_factor() -> None:
    by_name = {alert.name: alert.query for alert in ALERTS}
    # Source: The Site Reliability Workbook, table 5-8, for 99%.
    expected = {"Fast": ("14.4", "1h", "5m"), "Slow": ("6", "6h", "30m")}
    for view in ("Server", "Client"):
        for name, (factor, long, short) in expected.items():
            query = by_name[f"Infersweep{view}SloBurn{name}"]
            assert query.count(f"({factor} * 0.01)") == 2
            assert re.findall(r"ratio_rate(\w+)", query) == [long, short]
