"""``infersweep observe``: what it starts, and what it says where it cannot."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest
import yaml

from loadtest.dashboards.rules import rules_for
from loadtest.observing import grafana, prometheus
from loadtest.observing.configuration import RULE_FILES
from loadtest.observing.prometheus import Watching, watched
from loadtest.targets import FOLDER_VARIABLE
from serving.backends.triton.locate import docker_works
from serving.errors import MachineError
from serving.process import free_port

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def targets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "targets"
    monkeypatch.setenv(FOLDER_VARIABLE, str(folder))
    return folder


def watching(data: Path, **changes: object) -> Watching:
    return Watching(data, rules_for(1.0), **{"port": free_port(), **changes})  # type: ignore[arg-type]


def refused(how: Watching) -> str:
    with pytest.raises(MachineError) as caught, watched(how):
        pass
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.fixture
def bare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine whose PATH has nothing but what a test puts there."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    return folder


def program(folder: Path, name: str, text: str) -> None:
    file = folder / name
    file.write_text(f"#!/bin/sh\n{text}\n")
    file.chmod(0o755)


def test_without_prometheus_and_docker_it_says_how_to_get_one(bare: Path, tmp_path: Path) -> None:
    told = refused(watching(tmp_path / "data"))
    for part in ("no Prometheus on PATH and no Docker", "apt-get install prometheus"):
        assert part in told
    assert "infersweep observe RESULTS" in told


def test_a_docker_client_without_its_daemon_is_no_docker(bare: Path, tmp_path: Path) -> None:
    program(bare, "docker", "exit 1")
    assert not docker_works()
    assert "no Docker" in refused(watching(tmp_path / "data"))


def test_with_docker_alone_the_container_gets_what_it_reads(bare: Path, tmp_path: Path) -> None:
    program(bare, "docker", "exit 0")
    how = watching(tmp_path / "data")
    config, targets = how.data / "prometheus.yml", tmp_path / "targets"
    command = prometheus._command(how, config, targets)
    image = command.index(prometheus.IMAGE)
    mounts = [word.removeprefix("--volume=") for word in command[:image] if "--volume" in word]
    assert {mount.split(":")[0] for mount in mounts} == {str(how.data), str(targets)}
    assert f"--config.file={config}" in command[image:]
    assert f"--web.listen-address=127.0.0.1:{how.port}" in command[image:]


def test_a_port_in_use_is_told(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        assert f"port {port}" in refused(watching(tmp_path / "data", port=port))


def test_a_folder_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("a file where the folder should be")
    told = refused(watching(tmp_path / "data"))
    assert str(tmp_path / "data") in told
    assert "--data" in told


def test_it_watches_with_the_rules_of_its_own_interval(tmp_path: Path, targets: Path) -> None:
    how = watching(tmp_path / "data", scrape_interval_s=2.0)
    with watched(how):
        pass
    written = yaml.safe_load((how.data / "prometheus.yml").read_text())
    assert written["global"]["scrape_interval"] == "2s"
    assert [Path(file).name for file in written["rule_files"]] == list(RULE_FILES)
    for file in written["rule_files"]:
        assert Path(file).read_text() == how.rules[Path(file).name]


def test_grafana_is_given_dashboards_and_the_address_of_prometheus(tmp_path: Path) -> None:
    folder = grafana.provisioned(watching(tmp_path / "data", scrape_interval_s=2.0))
    source = yaml.safe_load((folder / "datasources" / "prometheus.yml").read_text())
    assert source["datasources"][0]["jsonData"]["timeInterval"] == "2s"
    command = grafana.container_command("http://127.0.0.1:9090", 3001, folder)
    mounts = [word.removeprefix("--volume=") for word in command if word.startswith("--volume=")]
    for mount in mounts:
        host, inside, mode = mount.split(":")
        assert Path(host).is_dir()
        assert mode == "ro"
        assert inside.startswith("/")
    assert "--env=PROMETHEUS_URL=http://127.0.0.1:9090" in command
    home = next(w for w in command if "HOME_DASHBOARD" in w).partition("=")[2].partition("=")[2]
    folder, _, name = home.rpartition("/")
    host = next(m.split(":")[0] for m in mounts if m.split(":")[1] == folder)
    assert (Path(host) / name).is_file()


def test_one_version_of_each_image_is_used_everywhere() -> None:
    services = yaml.safe_load((ROOT / "docker-compose.yml").read_text())["services"]
    images = {service.get("image") for service in services.values()}
    assert {prometheus.IMAGE, grafana.IMAGE} <= images
