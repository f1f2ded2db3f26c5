"""Does the stack of docker-compose.yml work? For a machine with Docker, after `make setup`.

``.venv/bin/python -m deploy.smoke`` brings it up under a project name of its own, asks everything
once, prints a table, and takes down what it brought up. Ends with 0 when every line is ``ok``, 1
when one is not, 3 without Docker. The ports of the stack must be free.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from deploy.answers import difference, request
from deploy.panels import judge, questions
from loadtest.dashboards.queries import Span

ROOT = Path(__file__).parents[1]
PROJECT = "infersweep-smoke"
SERVERS = {"triton": 8000, "onnxruntime": 8010, "fastapi": 8020}
GRAFANA, PROMETHEUS = "http://127.0.0.1:3000", "http://127.0.0.1:9090"
LOCUST = "http://127.0.0.1:8089"
TOLERANCE = {"cpu": 1e-3, "gpu": 1e-2}
"""As a share of the largest value: on a GPU float32 convolutions keep 10 bits (TF32)."""
READY_WITHIN_S, ASKED_FOR_S = 900.0, 30.0
LOOKED_BACK_S, SCRAPED_EVERY_S = 900.0, 5.0
EXIT_FAILED, EXIT_MACHINE = 1, 3
_DIRECT = urllib.request.build_opener(urllib.request.ProxyHandler({}))


@dataclass(frozen=True)
class Line:
    """One line of the table; ``fault`` is empty where all is well."""

    check: str
    subject: str
    told: str
    fault: bool = False

    def __str__(self) -> str:
        verdict = "FAILED" if self.fault else "ok"
        return f"{verdict:<7} {self.check:<10} {self.subject:<44} {self.told}"


class Unready(Exception):  # noqa: N818  (it says what is so)
    """A service has ended, or was not well in time."""


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m deploy.smoke", description=__doc__)
    parser.add_argument("--profile", choices=tuple(TOLERANCE), default="cpu")
    asked = parser.parse_args(arguments)
    if shutil.which("docker") is None:
        sys.stderr.write("smoke: docker is not on PATH; Compose 2.24 or newer is needed.\n")
        return EXIT_MACHINE
    with tempfile.TemporaryDirectory(prefix="infersweep-") as results:
        compose = Compose(asked.profile, Path(results))
        try:
            compose.run("up", "--detach", "--build")
            wait_until_well(compose.services)
            failed = show(everything(asked.profile, compose))
        except (Unready, OSError, subprocess.CalledProcessError) as error:
            sys.stderr.write(f"smoke: {error}\n")
            compose.run("logs", "--tail", "20", check=False)
            failed = True
        finally:
            compose.run("down", "--volumes", "--timeout", "15", check=False)
    return EXIT_FAILED if failed else 0


class Compose:
    """``docker compose`` for one project and profile; results of the load go to ``results``."""

    def __init__(self, profile: str, results: Path) -> None:
        self.results = results
        self._command = ("docker", "compose", "--project-name", PROJECT, "--profile", profile)
        owner = f"{os.getuid()}:{os.getgid()}"
        self._environment = {**os.environ, "RESULTS": str(results), "LOAD_USER": owner}

    def run(self, *arguments: str, check: bool = True) -> None:
        command = (*self._command, *arguments)
        subprocess.run(command, cwd=ROOT, env=self._environment, check=check)

    def services(self) -> list[dict[str, Any]]:
        """Each container as ``docker compose ps`` tells of it."""
        command = (*self._command, "ps", "--all", "--format", "json")
        told = subprocess.run(
            command, cwd=ROOT, env=self._environment, check=True, capture_output=True, text=True
        )
        return parse_containers(told.stdout)


def parse_containers(text: str) -> list[dict[str, Any]]:
    """A line for each container, or one list of all: Compose has written both."""
    if text.lstrip().startswith("["):
        listed: list[dict[str, Any]] = json.loads(text)
        return listed
    return [json.loads(line) for line in text.splitlines() if line.strip()]


def unready(containers: Sequence[Mapping[str, Any]]) -> list[str]:
    """Services that are not well yet; one that has done its work and ended is well.

    Raises:
        Unready: one has failed, which waiting does not mend.
    """
    waiting = []
    for container in containers:
        name, state, health = container["Service"], container["State"], container.get("Health", "")
        if state == "exited" and container["ExitCode"] == 0:
            continue
        if state in ("exited", "dead") or health == "unhealthy":
            raise Unready(f"{name} is {health or state}, exit code {container['ExitCode']}")
        if state != "running" or health == "starting":
            waiting.append(name)
    return waiting


def wait_until_well(containers: Callable[[], Sequence[Mapping[str, Any]]]) -> None:
    """Raises Unready when a service has failed, or is not well within READY_WITHIN_S."""
    deadline = time.monotonic() + READY_WITHIN_S
    while waiting := unready(containers()):
        if time.monotonic() > deadline:
            raise Unready(f"not well after {READY_WITHIN_S:.0f} s: {', '.join(waiting)}")
        time.sleep(2.0)


def show(lines: Iterator[Line]) -> bool:
    """Print each as it comes; whether one has failed."""
    failed = False
    for line in lines:
        sys.stdout.write(f"{line}\n")
        sys.stdout.flush()
        failed |= line.fault
    return failed


def everything(profile: str, compose: Compose) -> Iterator[Line]:
    model = os.environ.get("MODEL", "image_classifier")
    yield from servers(model, TOLERANCE[profile])
    yield locust()
    yield load(compose)
    yield from prometheus(profile)
    yield from grafana()


def servers(model: str, tolerance: float) -> Iterator[Line]:
    """One inference each, held against the first server's; then one a second for the charts."""
    bodies, first = {}, None
    for name, port in SERVERS.items():
        at = f"http://127.0.0.1:{port}/v2/models/{model}"
        try:
            bodies[f"{at}/infer"] = body = request(ask(at))
            answer = ask(f"{at}/infer", body)
            share = difference(first or answer, answer)
        except (OSError, ValueError, KeyError) as error:
            yield Line("inference", name, f"{type(error).__name__}: {error}", fault=True)
            continue
        first = first or answer
        told = f"largest difference {share:.1e}"
        yield Line("inference", name, told, fault=share > tolerance)
    deadline = time.monotonic() + ASKED_FOR_S
    while bodies and time.monotonic() < deadline:
        for url, body in bodies.items():
            ask(url, body)
        time.sleep(1.0)


def locust() -> Line:
    workers = ask(f"{LOCUST}/stats/requests").get("worker_count", 0)
    return Line("locust", "workers that are connected", str(workers), fault=workers < 1)


def load(compose: Compose) -> Line:
    """A measured run in a container; its verdict is the machine's affair, its summary is ours."""
    arguments = ("--url=http://onnxruntime:8000", "--levels=1", "--duration=10", "--slo=250ms")
    compose.run("run", "--rm", "--no-deps", "load", *arguments, check=False)
    found = [path.parent.name for path in compose.results.glob("*/summary.json")]
    return Line("load", "results of a run", ", ".join(found) or "none", fault=not found)


def prometheus(profile: str) -> Iterator[Line]:
    """Every announced target is scraped, every rule is evaluated."""
    found = ask(f"{PROMETHEUS}/api/v1/targets")["data"]["activeTargets"]
    health = {target["discoveredLabels"]["__address__"]: target for target in found}
    for address in announced(profile):
        target = health.get(address, {"health": "not known to it", "lastError": ""})
        told = f"{target['health']} {target['lastError']}".strip()
        yield Line("target", address, told, fault=target["health"] != "up")
    for group in ask(f"{PROMETHEUS}/api/v1/rules")["data"]["groups"]:
        wrong = [rule["name"] for rule in group["rules"] if rule["health"] == "err"]
        told = ", ".join(wrong) or f"{len(group['rules'])} rules"
        yield Line("rules", group["name"], told, fault=bool(wrong))


def announced(profile: str) -> list[str]:
    """The addresses that the stack announces to Prometheus."""
    files = ["compose.json"] + (["gpu.json"] if profile == "gpu" else [])
    return [
        address
        for file in files
        for entry in json.loads((ROOT / "grafana" / "targets" / file).read_text())
        for address in entry["targets"]
    ]


def grafana() -> Iterator[Line]:
    """All dashboards are there, the right one is home, and each panel's queries are answered."""
    ours = [json.loads(f.read_text()) for f in sorted(ROOT.glob("grafana/dashboards/*.json"))]
    listed = {found["uid"] for found in ask(f"{GRAFANA}/api/search?type=dash-db")}
    for dashboard in ours:
        there = dashboard["uid"] in listed
        yield Line("dashboard", dashboard["title"], "" if there else "missing", fault=not there)
    home = ask(f"{GRAFANA}/api/dashboards/home")["dashboard"]["title"]
    wanted = json.loads((ROOT / "grafana/dashboards/sweep.json").read_text())["title"]
    yield Line("home", wanted, f"is {home}", fault=home != wanted)
    for uid in sorted(listed):
        yield from _panels(ask(f"{GRAFANA}/api/dashboards/uid/{uid}")["dashboard"])


def _panels(dashboard: Mapping[str, Any]) -> Iterator[Line]:
    """A panel may be empty, a dashboard may not."""
    now_s = time.time()
    span = Span(now_s - LOOKED_BACK_S, now_s, SCRAPED_EVERY_S, SCRAPED_EVERY_S)
    kinds = []
    for question in questions(dashboard, span):
        reply = judge(ask(f"{GRAFANA}/api/ds/query", question.body))
        kinds.append(reply.kind)
        told = f"{reply.kind}: {reply.told}"
        yield Line("query", question.query.place, told, fault=reply.kind == "error")
    filled = kinds.count("data")
    told = f"{filled} of {len(kinds)} queries have data"
    yield Line("dashboard", dashboard["title"], told, fault=not filled)


def ask(url: str, body: Mapping[str, Any] | None = None) -> Any:
    """The JSON at ``url``; a refusal that comes as JSON is an answer too.

    Raises:
        OSError: nobody answers, or not with JSON.
    """
    data = None if body is None else json.dumps(body).encode()
    asked = urllib.request.Request(url, data, {"Content-Type": "application/json"})
    try:
        with _DIRECT.open(asked, timeout=30.0) as reply:
            return json.load(reply)
    except urllib.error.HTTPError as error:
        try:
            return json.load(error)
        except ValueError:
            raise OSError(f"{url}: {error}") from None


if __name__ == "__main__":
    sys.exit(main())
