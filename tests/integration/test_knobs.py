"""Real servers that were set: they answer rightly, and are what the setting says."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import requests

from serving.deployable import write_deployable
from serving.deployment import Placement, Server, running
from serving.errors import MachineError, ServerError
from serving.knobs import Setting
from serving.knobs.table import GUNICORN_ASGI, WORKER_CLASSES
from serving.models.repository import Model
from serving.parity import check_parity, reference_for
from serving.process import RunningProcess, family, free_port, require_free_port
from serving.readiness import wait_ready

REPLICAS = Path(__file__).parents[2] / "serving" / "replicas.py"


@contextmanager
def served(label: str, tiny: Model, folder: Path, setting: Setting) -> Iterator[Server]:
    placement = Placement((0, 1), 2, setting=setting)
    with running(label, tiny, placement, repository=folder / "r", logs=folder) as server:
        for url in (server.url, server.launch.grpc_url):
            if url:
                assert check_parity(url, server.model, reference_for(tiny)).passed
        yield server


def configuration(server: Server) -> dict[str, Any]:
    """What the server itself says of its model."""
    found: dict[str, Any] = requests.get(f"{server.url}/v2/models/tiny/config", timeout=20).json()
    return found


def answered(urls: tuple[str, ...], sample: str) -> list[float]:
    """Inferences that each replica has counted."""
    texts = (requests.get(url, timeout=20).text for url in urls)
    return [
        sum(float(line.split()[-1]) for line in text.splitlines() if line.startswith(sample))
        for text in texts
    ]


def ask_over_new_connections(server: Server, count: int) -> None:
    body = {"inputs": [{"name": "x", "datatype": "FP32", "shape": [1, 64], "data": [0.0] * 64}]}
    for _ in range(count):
        reply = requests.post(f"{server.url}/v2/models/tiny/infer", json=body, timeout=20)
        assert reply.status_code == 200


def is_free(port: int) -> bool:
    try:
        return require_free_port(port) == port
    except MachineError:
        return False


def environment(pid: int) -> list[str]:
    return Path(f"/proc/{pid}/environ").read_text().split("\0")


@pytest.mark.parametrize("worker_class", WORKER_CLASSES[1:])
def test_fastapi_with_other_workers(worker_class: str, tiny: Model, tmp_path: Path) -> None:
    setting = {
        "workers": "1",
        "worker_threads": "2",
        "worker_class": worker_class,
        "malloc_arenas": "1",
    }
    with served("fastapi", tiny, tmp_path, setting) as server:
        assert server.process
        told = requests.get(f"{server.url}/v2", timeout=20).headers["Server"]
        assert told == ("gunicorn/asgi" if worker_class == GUNICORN_ASGI else "uvicorn")
        assert len(family(server.process.pid)) == 2
        assert "MALLOC_ARENA_MAX=1" in environment(server.process.pid)
        assert server.launch.facts["inferences at once per worker"] == "2"
        assert server.launch.metrics_url
        assert "infersweep_" in requests.get(server.launch.metrics_url, timeout=20).text
    assert f"Using worker: {worker_class}" in (tmp_path / "fastapi.log").read_text()


def test_replicas_of_onnxruntime_share_one_address(tiny: Model, tmp_path: Path) -> None:
    setting = {"instances": "1", "replicas": "2", "max_batch_size": "4", "queue_delay_us": "500"}
    with served("onnxruntime", tiny, tmp_path, setting) as server:
        stated = configuration(server)
        assert stated["max_batch_size"] == 4
        assert stated["dynamic_batching"]["max_queue_delay_microseconds"] == 500
        counted = "infersweep_request_seconds_count"
        before = sum(answered(server.launch.metrics_urls, counted))
        # All at one of two replicas: one chance in 2 ** 39.
        ask_over_new_connections(server, 40)
        after = answered(server.launch.metrics_urls, counted)
        assert sum(after) - before == 40
        assert all(after)
        assert server.process
        # The replicas, a supervisor and a server of each.
        assert len(family(server.process.pid)) == 5
        killed = next(p for p in family(server.process.pid) if p.cmdline()[1] == "-m")
        killed.kill()
        killed.wait(20)
        for url in server.launch.metrics_urls:
            address = url.removesuffix("/metrics")
            wait_ready(address, "tiny", deadline_s=30, process=server.process, label="replica")
        ask_over_new_connections(server, 10)
    assert server.ended == "exited with status 0"


def test_replicas_do_not_share_an_address_with_others(tiny: Model, tmp_path: Path) -> None:
    with served("onnxruntime", tiny, tmp_path, {}) as other:
        port = int(other.url.rpartition(":")[2])
        placement = Placement((0, 1), 2, port=port, setting={"replicas": "2"})
        (tmp_path / "late").mkdir()
        context = running(
            "onnxruntime", tiny, placement, repository=tmp_path / "r2", logs=tmp_path / "late"
        )
        with (
            pytest.raises(ServerError, match="is not up: the process exited with status 3"),
            context,
        ):
            pass
    assert "cannot listen at 127.0.0.1" in (tmp_path / "late" / "onnxruntime.log").read_text()


def test_replicas_of_triton_share_one_address(tiny: Model, tmp_path: Path) -> None:
    setting = {
        "instances": "1",
        "replicas": "2",
        "http_threads": "1",
        "execution_mode": "parallel",
        "inter_op_threads": "2",
        "queue_delay_us": "off",
    }
    with served("triton", tiny, tmp_path, setting) as server:
        stated = configuration(server)
        assert "dynamic_batching" not in stated
        assert stated["parameters"]["execution_mode"]["string_value"] == "1"
        assert stated["instance_group"][0]["count"] == 1
        counted = "nv_inference_request_success"
        before = sum(answered(server.launch.metrics_urls, counted))
        ask_over_new_connections(server, 40)
        after = answered(server.launch.metrics_urls, counted)
        assert sum(after) - before == 40
        assert all(after)
        assert server.launch.facts["HTTP threads"] == "1"


@pytest.mark.parametrize(
    ("label", "setting", "port_of_metrics"),
    [
        ("fastapi", {"workers": "1", "malloc_arenas": "1"}, 1),
        ("onnxruntime", {"instances": "2"}, 0),
    ],
)
def test_what_is_deployed_serves_by_its_own_command(
    label: str, setting: Setting, port_of_metrics: int, tiny: Model, tmp_path: Path
) -> None:
    port = next(port for port in iter(free_port, 0) if is_free(port + 1))
    placement = Placement((0, 1), 2, port=port)
    made = write_deployable(label, tiny, setting, placement, tmp_path / "deployed")
    (command,) = made.commands
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    argv = ("env", f"PATH={path}", *shlex.split(command))
    url = f"http://127.0.0.1:{port}"
    with RunningProcess(argv, cwd=made.folder, log=tmp_path / "log") as process:
        wait_ready(url, "tiny", deadline_s=60, process=process, label=label)
        assert check_parity(url, tiny, reference_for(tiny)).passed
        metrics = requests.get(f"http://127.0.0.1:{port + port_of_metrics}/metrics", timeout=20)
        assert "infersweep_" in metrics.text
        given = environment(process.pid)
        assert all(f"{name}={value}" in given for name, value in made.environment.items())
        assert not process.stop().killed


def copies(count: int, script: str) -> subprocess.Popen[bytes]:
    ports = ",".join(str(number) for number in range(count))
    return subprocess.Popen([sys.executable, "-I", "-S", REPLICAS, ports, "sh", "-c", script])


def test_when_one_copy_ends_for_good_the_others_end_too() -> None:
    with copies(3, "[ {port} = 1 ] && exit 7; exec sleep 60") as process:
        assert process.wait(20) == 7


def test_copies_end_when_they_are_told_to(tmp_path: Path) -> None:
    trap = f"trap 'touch {tmp_path}/ended{{port}}; exit 0' TERM; touch {tmp_path}/up{{port}}"
    with copies(2, f"{trap}; while :; do sleep 0.02; done") as process:
        while len(list(tmp_path.glob("up*"))) < 2:
            assert process.poll() is None
            time.sleep(0.01)
        process.terminate()
        assert process.wait(20) == 0
    assert {file.name for file in tmp_path.glob("ended*")} == {"ended0", "ended1"}
