"""Files of rules as Prometheus reads them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from textwrap import indent

from loadtest.dashboards.alerts import ALERTS, Alert
from loadtest.dashboards.recording import BURNS, SERVERS, Recorded, rate_window
from loadtest.observing.configuration import RULE_FILES

HEADER = "# Made by: python -m loadtest.dashboards\n"


def rules_for(scrape_interval_s: float) -> Mapping[str, str]:
    """Both files by their names, for servers that are scraped so often."""
    recording, alerts = RULE_FILES
    return {recording: recording_rules(scrape_interval_s), alerts: alert_rules()}


def recording_rules(scrape_interval_s: float) -> str:
    """recording.yml for servers that are scraped so often."""
    window = rate_window(scrape_interval_s)
    return (
        f"{HEADER}groups:\n"
        f"{_group('infersweep-servers', [_recorded(series, window) for series in SERVERS])}"
        f"{_group('infersweep-objective', [_recorded(series, window) for series in BURNS])}"
    )


def alert_rules() -> str:
    """alerts.yml."""
    return f"{HEADER}groups:\n{_group('infersweep-alerts', [_alert(alert) for alert in ALERTS])}"


def _group(name: str, rules: list[str]) -> str:
    return f"  - name: {name}\n    rules:\n{''.join(rules)}"


def _recorded(series: Recorded, window: str) -> str:
    return f"      - record: {series.name}\n{_expr(series.query(window))}"


def _alert(alert: Alert) -> str:
    return (
        f"      - alert: {alert.name}\n{_expr(alert.query)}"
        f"        for: {alert.hold}\n"
        f"        labels:\n          severity: {alert.severity}\n"
        "        annotations:\n"
        # A JSON string is a YAML string.
        f"          summary: {json.dumps(alert.summary)}\n"
        f"          description: {json.dumps(alert.meaning)}\n"
    )


def _expr(query: str) -> str:
    return f"        expr: |-\n{indent(query, ' ' * 10)}\n"
