"""The compose file as far as it can be checked without a daemon: it parses and its mounts exist."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[2]
COMPOSE = yaml.safe_load((ROOT / "docker-compose.yml").read_text())


@pytest.mark.parametrize("name", COMPOSE["services"])
def test_a_service_mounts_what_exists_and_stays_on_loopback(name: str) -> None:
    service = COMPOSE["services"][name]
    for mount in service.get("volumes", ()):
        source, _, mode = mount.split(":")
        assert (ROOT / source).exists()
        assert mode == "ro"
    assert all(port.startswith("127.0.0.1:") for port in service["ports"])
    assert "build" in service or ":" in service["image"]


def test_prometheus_scrapes_services_that_are_there() -> None:
    scraped = yaml.safe_load((ROOT / "grafana" / "prometheus.yml").read_text())
    targets = [t for job in scraped["scrape_configs"] for t in job["static_configs"][0]["targets"]]
    assert {target.split(":")[0] for target in targets} <= set(COMPOSE["services"])
