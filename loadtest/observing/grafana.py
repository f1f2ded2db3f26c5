"""Grafana in a container beside a Prometheus of one's own, with the dashboards of the checkout."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.request import urlopen

from serving.process import RunningProcess, require_free_port, wait_until

GRAFANA_FOLDER = Path(__file__).resolve().parents[2] / "grafana"
IMAGE = "grafana/grafana:13.1.3"
_READY_WITHIN_S = 120.0


def container_command(prometheus: str, port: int, scrape_interval: str) -> list[str]:
    """On the host's network, so that it reaches Prometheus on loopback; whoever looks may look."""
    settings = {
        "GF_SERVER_HTTP_ADDR": "127.0.0.1",
        "GF_SERVER_HTTP_PORT": str(port),
        "GF_AUTH_ANONYMOUS_ENABLED": "true",
        "GF_ANALYTICS_REPORTING_ENABLED": "false",
        "GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH": "/dashboards/sweep.json",
        "PROMETHEUS_URL": prometheus,
        "PROMETHEUS_SCRAPE_INTERVAL": scrape_interval,
    }
    return [
        *("docker", "run", "--rm", "--network=host", f"--user={os.getuid()}:0"),
        *(f"--env={name}={value}" for name, value in settings.items()),
        f"--volume={GRAFANA_FOLDER / 'provisioning'}:/etc/grafana/provisioning:ro",
        f"--volume={GRAFANA_FOLDER / 'dashboards'}:/dashboards:ro",
        IMAGE,
    ]


@contextmanager
def grafana(prometheus: str, port: int, scrape_interval: str, log: Path) -> Iterator[str]:
    """A Grafana that is ready; yields its address.

    ``scrape_interval`` of that Prometheus, such as ``1s``.

    Raises:
        MachineError: the port is in use.
        ServerError: it did not become ready.
    """
    require_free_port(port)
    url = f"http://127.0.0.1:{port}"
    with RunningProcess(container_command(prometheus, port, scrape_interval), log=log) as process:
        wait_until(
            lambda: _is_healthy(url), deadline_s=_READY_WITHIN_S, process=process, what="Grafana"
        )
        yield url


def _is_healthy(url: str) -> bool:
    try:
        with urlopen(f"{url}/api/health", timeout=2.0) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False
