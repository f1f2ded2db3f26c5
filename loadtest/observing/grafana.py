"""Grafana in a container beside a Prometheus of one's own, with the dashboards of the checkout."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from loadtest.observing.configuration import duration
from loadtest.observing.prometheus import Watching
from serving.process import RunningProcess, require_free_port, wait_until
from serving.readiness import get_status

GRAFANA_FOLDER = Path(__file__).resolve().parents[2] / "grafana"
IMAGE = "grafana/grafana:13.1.3"
_READY_WITHIN_S = 120.0


def container_command(prometheus: str, port: int, provisioning: Path) -> list[str]:
    """On the host's network, so that it reaches Prometheus on loopback; whoever looks may look."""
    settings = {
        "GF_SERVER_HTTP_ADDR": "127.0.0.1",
        "GF_SERVER_HTTP_PORT": str(port),
        "GF_AUTH_ANONYMOUS_ENABLED": "true",
        "GF_ANALYTICS_REPORTING_ENABLED": "false",
        "GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH": "/dashboards/sweep.json",
        "PROMETHEUS_URL": prometheus,
    }
    return [
        *("docker", "run", "--rm", "--network=host", f"--user={os.getuid()}:0"),
        *(f"--env={name}={value}" for name, value in settings.items()),
        f"--volume={provisioning.absolute()}:/etc/grafana/provisioning:ro",
        f"--volume={GRAFANA_FOLDER / 'dashboards'}:/dashboards:ro",
        IMAGE,
    ]


def provisioned(how: Watching) -> Path:
    """The checkout's provisioning with the scrape interval of ``how``, in its data folder."""
    folder = how.data / "grafana-provisioning"
    shutil.copytree(GRAFANA_FOLDER / "provisioning", folder, dirs_exist_ok=True)
    source = folder / "datasources" / "prometheus.yml"
    own = f"timeInterval: {duration(how.scrape_interval_s)}"
    source.write_text(re.sub(r"timeInterval: \S+", own, source.read_text(encoding="utf-8")))
    return folder


@contextmanager
def grafana(how: Watching, port: int) -> Iterator[str]:
    """A Grafana for the Prometheus of ``how`` that is ready; yields its address.

    Raises:
        MachineError: the port is in use.
        ServerError: it did not become ready.
    """
    require_free_port(port)
    provisioning = provisioned(how)
    log = how.data / "grafana.log"
    url = f"http://127.0.0.1:{port}"
    with RunningProcess(container_command(how.url, port, provisioning), log=log) as process:
        wait_until(
            lambda: get_status(url, "/api/health") == 200,
            deadline_s=_READY_WITHIN_S,
            process=process,
            what="Grafana",
        )
        yield url
