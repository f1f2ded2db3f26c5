"""Kubernetes manifests as the real kustomize builds them, and the programs inside containers."""

from __future__ import annotations

import re
import socket
import subprocess
import sys
import tomllib
from functools import cache
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml
from google.protobuf import text_format
from tritonclient.grpc import model_config_pb2 as schema

from deploy import health, place_models
from serving.errors import ModelError
from serving.models.config import load_config
from serving.models.repository import Model
from tests.unit.test_compose import EVERY as COMPOSE

ROOT = Path(__file__).parents[2]
OVERLAYS = ROOT / "deploy/kubernetes/overlays"
SERVERS = ("triton", "onnxruntime", "fastapi")
KUBERNETES = "1.37"
Json = dict[str, Any]

each_overlay = pytest.mark.parametrize("overlay", ["cpu", "gpu"])


@cache
def built(overlay: str) -> tuple[Json, ...]:
    told = subprocess.run(
        [Path(sys.executable).with_name("kubectl"), "kustomize", OVERLAYS / overlay],
        capture_output=True,
        text=True,
        check=False,
    )
    assert not told.returncode, told.stderr
    return tuple(yaml.safe_load_all(told.stdout))


def of_kind(overlay: str, kind: str) -> dict[str, Json]:
    return {m["metadata"]["name"]: m for m in built(overlay) if m["kind"] == kind}


def pods(overlay: str) -> dict[str, Json]:
    found = of_kind(overlay, "Deployment")
    return {name: deployment["spec"]["template"] for name, deployment in found.items()}


def containers(pod: Json) -> list[Json]:
    return [*pod["spec"].get("initContainers", ()), *pod["spec"]["containers"]]


@each_overlay
def test_kubernetes_knows_every_field(overlay: str) -> None:
    for manifest in built(overlay):
        kubernetes_validate.validate(manifest, KUBERNETES, strict=True)


def test_a_field_that_kubernetes_does_not_know_is_noticed() -> None:
    wrong = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "a"}, "spce": {}}
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(wrong, KUBERNETES, strict=True)


@each_overlay
def test_selectors_find_the_pods_they_mean(overlay: str) -> None:
    templates = pods(overlay)
    for name, deployment in of_kind(overlay, "Deployment").items():
        wanted = deployment["spec"]["selector"]["matchLabels"]
        assert _selected(wanted, templates) == [name]
    for name, service in of_kind(overlay, "Service").items():
        assert _selected(service["spec"]["selector"], templates) == [name]


def _selected(wanted: Json, templates: dict[str, Json]) -> list[str]:
    return [
        name
        for name, template in templates.items()
        if wanted.items() <= template["metadata"]["labels"].items()
    ]


@each_overlay
def test_services_and_probes_name_ports_that_are_there(overlay: str) -> None:
    services = of_kind(overlay, "Service")
    for name, pod in pods(overlay).items():
        (main,) = pod["spec"]["containers"]
        ports = {port["name"]: port["containerPort"] for port in main.get("ports", ())}
        for port in services[name]["spec"]["ports"] if name in services else ():
            assert ports[port["targetPort"]] == port["port"]
        probes = [main[key] for key in main if key.endswith("Probe")]
        assert probes
        for probe in probes:
            if "httpGet" in probe:
                assert probe["httpGet"]["port"] in ports


@each_overlay
def test_every_pod_is_guaranteed_its_resources(overlay: str) -> None:
    """Requests equal limits in every container, of CPU and memory: the QoS class Guaranteed."""
    for pod in pods(overlay).values():
        for container in containers(pod):
            asked, most = container["resources"]["requests"], container["resources"]["limits"]
            assert asked == most
            assert {"cpu", "memory"} <= most.keys()
            assert most["cpu"].isdecimal(), "only whole CPUs are a container's own"


@each_overlay
def test_servers_get_the_same(overlay: str) -> None:
    templates = pods(overlay)
    (same,) = {str(templates[name]["spec"]["containers"][0]["resources"]) for name in SERVERS}
    assert ("nvidia.com/gpu" in same) == (overlay == "gpu")


@each_overlay
def test_a_pod_is_confined(overlay: str) -> None:
    for pod in pods(overlay).values():
        spec = pod["spec"]
        assert spec["securityContext"]["runAsNonRoot"] is True
        assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        assert spec["automountServiceAccountToken"] is False
        assert spec["enableServiceLinks"] is False, "or Locust reads LOCUST_MASTER_PORT as a number"
        for container in containers(pod):
            assert container["securityContext"] == {
                "allowPrivilegeEscalation": False,
                "readOnlyRootFilesystem": True,
                "capabilities": {"drop": ["ALL"]},
            }


@each_overlay
def test_images_are_those_of_compose_and_of_this_version(overlay: str) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    suffix = "-gpu" if overlay == "gpu" else ""
    main = {name: pod["spec"]["containers"][0]["image"] for name, pod in pods(overlay).items()}
    assert main == {name: COMPOSE[f"{name}{suffix}"]["image"] for name in SERVERS} | {
        name: COMPOSE[name]["image"] for name in ("locust-master", "locust-worker")
    }
    first = {c["image"] for pod in pods(overlay).values() for c in pod["spec"]["initContainers"]}
    assert first == {f"infersweep-models:{project['version']}"}
    ours = {image for image in main.values() if image.startswith("infersweep-")}
    assert {image.rpartition(":")[2] for image in ours} == {project["version"]}


@each_overlay
def test_commands_are_those_of_compose(overlay: str) -> None:
    (settings,) = (
        m["data"] for n, m in of_kind(overlay, "ConfigMap").items() if n.startswith("settings")
    )
    for name, pod in pods(overlay).items():
        (main,) = pod["spec"]["containers"]
        args = [re.sub(r"\$\((\w+)\)", lambda m: settings[m[1]], a) for a in main["args"]]
        assert args == COMPOSE[name]["command"]
        told = {v["name"]: v.get("value", settings["MODEL"]) for v in main.get("env", ())}
        assert told == (COMPOSE[name].get("environment") or {})


@each_overlay
def test_models_are_placed_for_the_right_accelerator(
    overlay: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    placed: dict[str, tuple[Any, ...]] = {}
    for name, pod in pods(overlay).items():
        monkeypatch.setattr(
            place_models, "place", lambda *of, on_gpu, to=name: placed.update({to: (*of, on_gpu)})
        )
        (first,) = pod["spec"]["initContainers"]
        assert place_models.main(first["args"][3:]) == 0
        mounts = {m["name"]: m["mountPath"] for m in first["volumeMounts"]}
        assert mounts["models"] == "/models"
    for name, of in placed.items():
        on_gpu = overlay == "gpu" and name in SERVERS
        assert of == ("$(MODEL)", Path("model_repository"), Path("/models"), on_gpu)


def test_what_is_scraped_is_a_service_and_is_annotated() -> None:
    config = yaml.safe_load(of_kind("cpu", "ConfigMap")["scrape"]["data"]["scrape.yml"])
    services, templates = of_kind("cpu", "Service"), pods("cpu")
    (job,) = config["scrape_configs"]
    seen = set()
    for entry in job["static_configs"]:
        (target,) = entry["targets"]
        host, _, port = target.partition(":")
        name, namespace, _ = host.split(".")
        assert services[name]["metadata"]["namespace"] == namespace
        assert int(port) in [p["port"] for p in services[name]["spec"]["ports"]]
        told = templates[name]["metadata"]["annotations"]
        assert (told["prometheus.io/scrape"], told["prometheus.io/port"]) == ("true", port)
        assert entry["labels"]["backend"] == name
        seen.add(name)
    assert seen == set(SERVERS)


def test_a_server_that_answers_is_well() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
        table = Path("/proc/net/tcp").read_text()
        assert not health.connected(table, port), "listening is not connected"
        with socket.create_connection(("127.0.0.1", port)):
            assert health.main(["connected", str(port)]) == 0
    assert health.main(["answers", f"http://127.0.0.1:{port}/"]) == 1
    assert health.main(["answers"]) == 2


def test_a_model_is_placed_as_it_is_for_a_cpu(tiny: Model, tmp_path: Path) -> None:
    place_models.place(tiny.name, tiny.root, tmp_path, on_gpu=False)
    placed = Model(tmp_path, tiny.name)
    assert placed.sha256() == tiny.sha256()
    assert placed.config == tiny.config


def test_a_model_is_placed_on_the_first_gpu_and_otherwise_the_same(
    tiny: Model, tmp_path: Path
) -> None:
    place_models.place(tiny.name, tiny.root, tmp_path, on_gpu=True)
    config = load_config(tmp_path / tiny.name / "config.pbtxt")
    assert (config.accelerator, config.execution.devices) == ("gpu", (0,) * config.instances)
    assert config.instances == tiny.config.instances
    before, after = (
        text_format.Parse((root / tiny.name / "config.pbtxt").read_text(), schema.ModelConfig())
        for root in (tiny.root, tmp_path)
    )
    for message in (before, after):
        del message.instance_group[:]
    assert before == after


def test_a_model_that_is_not_built_is_not_placed(tiny: Model, tmp_path: Path) -> None:
    empty = tmp_path / "from" / tiny.name
    empty.mkdir(parents=True)
    (empty / "config.pbtxt").write_text((tiny.folder / "config.pbtxt").read_text())
    with pytest.raises(ModelError, match=r"no model\.onnx"):
        place_models.place(tiny.name, empty.parent, tmp_path / "to", on_gpu=False)
    assert not (tmp_path / "to").exists()
