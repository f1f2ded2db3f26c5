"""The container stack as far as no daemon is needed: as Compose itself reads it."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from deploy import place_models
from loadtest.observing import grafana, prometheus
from serving.backends.fastapi.settings import Settings as FastApiSettings
from serving.backends.onnxruntime.settings import parse
from serving.backends.triton import container
from serving.backends.triton.wheel import ensure_triton

ROOT = Path(__file__).parents[2]
BIN = Path(sys.executable).parent
PROFILES = ("cpu", "gpu", "load")
SERVERS = ("triton", "onnxruntime", "fastapi")
VERSION = re.compile(r":v?\d+\.\d+[\w.-]*$")
ONE_SHOT = {"targets", "targets-gpu", "gpu-models", "load"}
"""They do one thing and end, so there is no health to ask for."""
ROOT_USERS = {"dcgm-exporter": ["SYS_ADMIN"]}
"""DCGM watches GPUs as root only."""
WRITTEN = {"load": {"/app/results"}}
GENERATED = {"./results": "made by whoever runs `load`, so that it is his"}

Service = dict[str, Any]


@cache
def stack(*arguments: str, **environment: str) -> dict[str, Any]:
    """The stack as the real Compose resolves it; without the variables of whoever runs the test."""
    command = [BIN / "docker-compose", "--project-directory", ROOT, *arguments]
    told = subprocess.run(
        [*command, "config", "--format", "json"],
        env={"PATH": os.environ["PATH"], **environment},
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert not told.returncode, told.stderr
    found: dict[str, Any] = json.loads(told.stdout)
    return found


def services(profile: str) -> dict[str, Service]:
    found: dict[str, Service] = stack("--profile", profile)["services"]
    return found


EVERY = {name: service for profile in PROFILES for name, service in services(profile).items()}
each_service = pytest.mark.parametrize("name", sorted(EVERY))


def test_a_plain_up_starts_the_cpu_profile() -> None:
    assert stack() == stack("--profile", "cpu")
    assert set(SERVERS) < set(stack()["services"])


def test_the_gpu_profile_takes_its_place_and_not_a_place_beside_it() -> None:
    assert not set(SERVERS) & set(services("gpu"))
    assert {f"{name}-gpu" for name in SERVERS} | {"dcgm-exporter"} < set(services("gpu"))


@each_service
def test_an_image_has_a_version(name: str) -> None:
    assert VERSION.search(EVERY[name]["image"])


@each_service
def test_a_service_is_confined(name: str) -> None:
    service = EVERY[name]
    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]
    assert service.get("cap_add", []) == ROOT_USERS.get(name, [])
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert service["user"].startswith("0:") == (name in ROOT_USERS)
    assert service["restart"] == "no"


@each_service
def test_a_service_has_a_share_of_the_machine(name: str) -> None:
    service = EVERY[name]
    assert int(service["mem_limit"]) > 0
    assert service["cpuset"]
    assert service["pids_limit"] > 0


@each_service
def test_a_service_tells_whether_it_is_well(name: str) -> None:
    check = EVERY[name].get("healthcheck", {})
    if name in ONE_SHOT:
        assert check == {"disable": True}
        return
    assert check["test"][0] == "CMD"
    assert (check["interval"], check["start_interval"]) == ("1m0s", "2s")


@each_service
def test_a_mount_exists_and_is_read_only(name: str) -> None:
    for mount in EVERY[name].get("volumes", ()):
        written = WRITTEN.get(name, set()) | {"/targets", "/prometheus"}
        if name == "gpu-models":
            written |= {"/app/model_repository"}
        assert mount.get("read_only", False) == (mount["target"] not in written)
        if mount["type"] == "bind":
            assert not mount["bind"].get("create_host_path", False)
            source = Path(mount["source"])
            assert source.exists() or f"./{source.relative_to(ROOT)}" in GENERATED


@each_service
def test_a_port_is_published_on_loopback_only(name: str) -> None:
    assert all(port["host_ip"] == "127.0.0.1" for port in EVERY[name].get("ports", ()))


@pytest.mark.parametrize("profile", ["cpu", "gpu"])
def test_no_port_is_published_twice(profile: str) -> None:
    ports = [p["published"] for s in services(profile).values() for p in s.get("ports", ())]
    assert len(ports) == len(set(ports))


@pytest.mark.parametrize("profile", ["cpu", "gpu"])
def test_servers_and_generators_have_different_cpus(profile: str) -> None:
    cpus = {name: service["cpuset"] for name, service in services(profile).items()}
    of_servers = {cpus.pop(name) for name in list(cpus) if name.removesuffix("-gpu") in SERVERS}
    assert of_servers == {"0"}
    assert set(cpus.values()) == {"1"}


def test_shares_of_the_machine_can_be_chosen() -> None:
    chosen = {"SERVER_CPUS": "2-5", "LOAD_CPUS": "6,7", "SERVER_MEMORY": "3g", "LOAD_WORKERS": "2"}
    found = stack("--profile", "cpu", **chosen)["services"]
    assert found["triton"]["cpuset"] == "2-5"
    assert int(found["triton"]["mem_limit"]) == int(found["triton"]["memswap_limit"]) == 3 << 30
    assert found["locust-worker"]["cpuset"] == "6,7"
    assert found["locust-worker"]["deploy"]["replicas"] == 2


@pytest.mark.parametrize("name", SERVERS)
def test_a_gpu_server_is_the_cpu_server_with_a_gpu(name: str) -> None:
    plain, gpu = services("cpu")[name], services("gpu")[f"{name}-gpu"]
    for same in ("command", "environment", "ports", "healthcheck", "cpuset", "user"):
        assert plain.get(same) == gpu.get(same), same
    assert gpu["networks"]["default"]["aliases"] == [name]
    (device,) = gpu["deploy"]["resources"]["reservations"]["devices"]
    assert (device["driver"], device["device_ids"], device["capabilities"]) == (
        "nvidia",
        ["0"],
        ["gpu"],
    )
    assert gpu["depends_on"]["gpu-models"]["condition"] == "service_completed_successfully"


def test_one_version_of_each_image_is_used_everywhere() -> None:
    assert EVERY["triton"]["image"] == container.DEFAULT_IMAGE
    assert EVERY["prometheus"]["image"] == prometheus.IMAGE
    assert EVERY["grafana"]["image"] == grafana.IMAGE


def test_the_onnxruntime_server_knows_its_options() -> None:
    command = EVERY["onnxruntime"]["command"]
    assert command[:3] == ["python", "-m", "serving.backends.onnxruntime"]
    settings = parse(command[3:])
    assert (settings.host, settings.models) == ("0.0.0.0", ("image_classifier",))
    assert [settings.port, settings.grpc_port] == _container_ports("onnxruntime")


def test_gunicorn_accepts_the_fastapi_command() -> None:
    service = EVERY["fastapi"]
    settings = FastApiSettings.from_environment(service["environment"])
    assert [8000, settings.metrics_port] == _container_ports("fastapi")
    assert "--bind=0.0.0.0:8000" in service["command"]
    program, *arguments = service["command"]
    told = subprocess.run(
        [sys.executable, "-m", program, "--check-config", *arguments],
        env={**os.environ, **service["environment"]},
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert not told.returncode, told.stderr


def test_triton_knows_its_options() -> None:
    found = ensure_triton(print)
    told = subprocess.run(
        [found.program, "--help"],
        env={**os.environ, **found.environment},
        capture_output=True,
        text=True,
        check=False,
    )
    known = set(re.findall(r"--[a-z-]+", told.stderr))
    program, *options = EVERY["triton"]["command"]
    assert program == "tritonserver"
    assert {option.partition("=")[0] for option in options} <= known
    assert _container_ports("triton") == [8000, 8001, 8002], "Triton's own defaults"


def test_locust_accepts_its_commands() -> None:
    commands = [EVERY[f"locust-{role}"]["command"][1:] for role in ("master", "worker")]
    code = (
        "import json, sys\n"
        "import loadtest.locustfile\n"
        "from locust import argument_parser\n"
        "parser = argument_parser.get_parser(default_config_files=[])\n"
        "parsed = [vars(parser.parse_args(c)) for c in json.loads(sys.argv[1])]\n"
        "print(json.dumps([[p['master'], p['worker'], p['host'], p['master_host'], p['model']]"
        " for p in parsed]))"
    )
    told = subprocess.run(
        [sys.executable, "-c", code, json.dumps(commands)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert not told.returncode, told.stderr
    master, worker = json.loads(told.stdout.splitlines()[-1])
    assert master == [True, False, "http://onnxruntime:8000", "127.0.0.1", "image_classifier"]
    assert worker == [False, True, None, "locust-master", "image_classifier"]


def test_the_gpu_models_are_placed_where_the_servers_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    placed: list[Any] = []
    monkeypatch.setattr(place_models, "place", lambda *of, on_gpu: placed.extend((*of, on_gpu)))
    assert EVERY["gpu-models"]["command"][:3] == ["python", "-m", "deploy.place_models"]
    assert place_models.main(EVERY["gpu-models"]["command"][3:]) == 0
    assert placed == ["image_classifier", Path("/source"), Path("/app/model_repository"), True]


@pytest.mark.parametrize(("profile", "files"), [("cpu", ["compose"]), ("gpu", ["compose", "gpu"])])
def test_what_is_announced_to_prometheus_is_there(profile: str, files: list[str]) -> None:
    found = services(profile)
    announcer = found["targets-gpu" if profile == "gpu" else "targets"]
    mounted = {m["source"] for m in announcer["volumes"] if m["type"] == "bind"}
    assert mounted == {str(ROOT / "grafana" / "targets" / f"{name}.json") for name in files}
    ports = {name: _container_ports(name, found) for name in found}
    for name, service in found.items():
        for alias in (service.get("networks", {}).get("default") or {}).get("aliases", ()):
            ports[alias] = ports[name]
    for file in sorted(mounted):
        for entry in json.loads(Path(file).read_text()):
            for target in entry["targets"]:
                host, _, port = target.partition(":")
                assert int(port) in ports[host], target


def test_every_server_is_announced_under_its_name() -> None:
    entries = json.loads((ROOT / "grafana/targets/compose.json").read_text())
    assert {entry["labels"]["backend"] for entry in entries} == set(SERVERS)
    for entry in entries:
        (target,) = entry["targets"]
        assert target.partition(":")[0] == entry["labels"]["backend"]
        assert (entry["labels"]["job"], entry["labels"]["run"]) == ("server", "compose")


def test_what_prometheus_reads_is_mounted() -> None:
    config = yaml.safe_load((ROOT / "grafana/prometheus.yml").read_text())
    mounts = {m["target"]: m for m in EVERY["prometheus"]["volumes"]}
    assert (
        f"--config.file={_target_of('prometheus', 'grafana/prometheus.yml')}"
        in (EVERY["prometheus"]["command"])
    )
    for rules in config["rule_files"]:
        source = Path(mounts[str(Path(rules).parent)]["source"])
        assert list(source.glob(Path(rules).name)), rules
    for job in config["scrape_configs"]:
        for discovery in job["file_sd_configs"]:
            for pattern in discovery["files"]:
                assert mounts[str(Path(pattern).parent)]["source"] == "targets"


def test_what_grafana_is_provisioned_with_is_mounted() -> None:
    service = EVERY["grafana"]
    folder = ROOT / "grafana/provisioning"
    assert _target_of("grafana", "grafana/provisioning") == "/etc/grafana/provisioning"
    (provider,) = yaml.safe_load((folder / "dashboards/dashboards.yml").read_text())["providers"]
    dashboards = provider["options"]["path"]
    assert dashboards == _target_of("grafana", "grafana/dashboards")
    home = Path(service["environment"]["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"])
    assert (ROOT / "grafana/dashboards" / home.relative_to(dashboards)).name == "sweep.json"
    (source,) = yaml.safe_load((folder / "datasources/prometheus.yml").read_text())["datasources"]
    config = yaml.safe_load((ROOT / "grafana/prometheus.yml").read_text())
    assert source["uid"] == "prometheus"
    assert source["jsonData"]["timeInterval"] == config["global"]["scrape_interval"]
    assert service["environment"][source["url"].removeprefix("$")] == "http://prometheus:9090"


def test_every_variable_is_in_the_documentation() -> None:
    used = set(re.findall(r"\$\{(\w+)", (ROOT / "docker-compose.yml").read_text()))
    told = (ROOT / "docs/containers.md").read_text()
    assert {name for name in used if f"`{name}`" not in told} == set()


def _container_ports(name: str, among: dict[str, Service] | None = None) -> list[int]:
    return [port["target"] for port in (among or EVERY)[name].get("ports", ())]


def _target_of(name: str, source: str) -> str:
    (target,) = (m["target"] for m in EVERY[name]["volumes"] if m["source"] == str(ROOT / source))
    return str(target)
