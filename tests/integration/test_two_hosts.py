"""A master and its workers on two hosts, which are two network namespaces of this machine."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from serving.models.repository import Model

HOST_A, HOST_B = "10.213.77.1", "10.213.77.2"
INFERSWEEP = Path(sys.executable).with_name("infersweep")

pytestmark = pytest.mark.skipif(
    os.getuid() != 0 or shutil.which("ip") is None,
    reason="network namespaces need root and iproute2",
)


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True)


@pytest.fixture
def hosts() -> Iterator[tuple[str, str]]:
    """Names of two namespaces that see each other over one cable and nothing else."""
    names = (f"iswa{os.getpid()}", f"iswb{os.getpid()}")
    cable = (f"va{os.getpid()}", f"vb{os.getpid()}")
    for name in names:
        ip("netns", "add", name)
    ip("link", "add", cable[0], "type", "veth", "peer", "name", cable[1])
    for name, end, address in zip(names, cable, (HOST_A, HOST_B), strict=True):
        ip("link", "set", end, "netns", name)
        ip("-n", name, "addr", "add", f"{address}/24", "dev", end)
        ip("-n", name, "link", "set", end, "up")
        ip("-n", name, "link", "set", "lo", "up")
    yield names
    for name in names:
        ip("netns", "del", name)


def start(host: str, *arguments: str, cwd: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        ["ip", "netns", "exec", host, str(INFERSWEEP), *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        cwd=cwd,
    )


def test_a_worker_on_another_host_generates_for_the_master(
    hosts: tuple[str, str], tiny: Model, tmp_path: Path
) -> None:
    model = ("--model", "tiny", "--repository", str(tiny.root))
    serve = ("serve", "--backend", "onnxruntime", "--host", HOST_A, "--port", "8000")
    server = start(hosts[0], *serve, *model, "--cpus", "0", cwd=tmp_path)
    assert server.stdout is not None
    try:
        for line in server.stdout:
            if "Ctrl-C stops it" in line:
                break
        load = ("load", "--url", f"http://{HOST_A}:8000", "--scenario", "server", "--levels", "50")
        fleet = ("--master", HOST_A, "--expect-workers", "1", "--duration", "3")
        master = start(hosts[0], *load, *model, *fleet, "--out", "out", cwd=tmp_path)
        time.sleep(2)
        worker = start(hosts[1], "load", "--worker", HOST_A, cwd=tmp_path)
        told, _ = master.communicate(timeout=120)
        worker.communicate(timeout=30)
    finally:
        server.terminate()
        server.communicate(timeout=30)
    trial = json.loads((tmp_path / "out" / "trials.jsonl").read_text())
    assert trial["outcomes"]["ok"] == trial["planned"] > 100, told
    assert 0 < trial["clock_error_s"] < 0.1
    assert master.returncode in (0, 8), told
