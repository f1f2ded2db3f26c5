"""Every file that is made from the table of metrics, and what it holds."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from loadtest.dashboards.dashboard import Dashboard
from loadtest.dashboards.generator import GENERATOR
from loadtest.dashboards.reference import reference
from loadtest.dashboards.resources import RESOURCES
from loadtest.dashboards.rules import HEADER, alert_rules, recording_rules
from loadtest.dashboards.server import SERVER
from loadtest.dashboards.sweep import SWEEP
from loadtest.observing.configuration import render

DASHBOARDS = (SWEEP, SERVER, RESOURCES, GENERATOR)

COMPOSE_INTERVAL_S = 5.0
_COMPOSE = Path("/etc/prometheus")


def dashboard_text(dashboard: Dashboard) -> str:
    return json.dumps(dashboard.to_json(), indent=2, ensure_ascii=False) + "\n"


def files() -> Mapping[str, str]:
    """Text by path below the repository's root."""
    made = {
        f"grafana/dashboards/{dashboard.name}.json": dashboard_text(dashboard)
        for dashboard in DASHBOARDS
    }
    made["grafana/rules/recording.yml"] = recording_rules(COMPOSE_INTERVAL_S)
    made["grafana/rules/alerts.yml"] = alert_rules()
    made["grafana/prometheus.yml"] = HEADER + render(
        COMPOSE_INTERVAL_S, _COMPOSE / "targets", _COMPOSE / "rules"
    )
    made["docs/metrics.md"] = reference()
    return made
