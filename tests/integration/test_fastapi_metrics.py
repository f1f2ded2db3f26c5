"""The metrics of a gunicorn with two workers, as Prometheus reads them."""

from __future__ import annotations

import http.client
import json
import os
import signal
import statistics
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import numpy as np
import psutil
import pytest
import requests
from onnx import TensorProto, helper, numpy_helper
from prometheus_client.core import Metric as Family
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector

from serving.backends.base import Launch
from serving.backends.fastapi.exporter import Exporter
from serving.deployment import Placement, plan_launch
from serving.errors import MachineError
from serving.metrics import SERVER_METRICS
from serving.models.repository import Model
from serving.process import RunningProcess, family, free_port, wait_until
from serving.readiness import WORKER_HEADER, wait_ready
from tests.sample_models import Port, write_model

INFER = "/v2/models/steps/infer"
ROUTE = "/v2/models/{name}/infer"
SLO_MS = 12_345.0
Samples = Mapping[tuple[str, frozenset[tuple[str, str]]], float]


def write_steps(root: Path) -> Model:
    """Works as long as a request asks for: ``steps`` products of matrices."""
    square = numpy_helper.from_array(np.eye(192, dtype=np.float32), "square")
    before, after = (
        helper.make_tensor_value_info(name, TensorProto.FLOAT, [192, 192]) for name in ("a", "b")
    )
    step = helper.make_graph(
        [
            helper.make_node("MatMul", ["a", "square"], ["b"]),
            helper.make_node("Identity", ["on"], ["still"]),
        ],
        "step",
        [
            helper.make_tensor_value_info("n", TensorProto.INT64, []),
            helper.make_tensor_value_info("on", TensorProto.BOOL, []),
            before,
        ],
        [helper.make_tensor_value_info("still", TensorProto.BOOL, []), after],
    )
    one = numpy_helper.from_array(np.array([1], np.int64), "one")
    nodes = [
        helper.make_node("Constant", [], ["square"], value=square),
        helper.make_node("Constant", [], ["one"], value=one),
        helper.make_node("Squeeze", ["steps"], ["count"]),
        helper.make_node("Loop", ["count", "", "square"], ["last"], body=step),
        helper.make_node("ReduceSum", ["last"], ["sum"], keepdims=0),
        helper.make_node("Reshape", ["sum", "one"], ["y"]),
    ]
    steps, y = Port("steps", "INT64", (1,)), Port("y", "FP32", (1,))
    return write_model(root, "steps", nodes, [steps], [y])


@dataclass(frozen=True)
class Served:
    launch: Launch
    process: RunningProcess

    def infer(self, steps: int = 1) -> str:
        """The process id of the worker that answered."""
        reply = requests.post(self.launch.url + INFER, body(steps), timeout=60)
        assert reply.status_code == 200, reply.text
        return reply.headers[WORKER_HEADER]

    def begin(self, steps: int) -> http.client.HTTPConnection:
        """A connection whose answer has not been read."""
        connection = http.client.HTTPConnection(urlsplit(self.launch.url).netloc)
        connection.request("POST", INFER, body(steps))
        return connection

    def status(self, method: str, path: str, content: bytes = b"") -> int:
        connection = http.client.HTTPConnection(urlsplit(self.launch.url).netloc, timeout=20)
        try:
            connection.request(method, path, content)
            return connection.getresponse().status
        finally:
            connection.close()

    def text(self) -> str:
        assert self.launch.metrics_url
        reply = requests.get(self.launch.metrics_url, timeout=20)
        assert reply.status_code == 200
        return reply.text

    def samples(self) -> Samples:
        return {
            (sample.name, frozenset(sample.labels.items())): sample.value
            for one in text_string_to_metric_families(self.text())
            for sample in one.samples
        }

    def value(self, name: str, **labels: str) -> float:
        return value(self.samples(), name, **labels)

    def wait_for(self, condition: Callable[[Samples], bool], what: str) -> Samples:
        """The first scrape that fulfils it."""
        last: list[Samples] = []

        def holds() -> bool:
            last[:] = [self.samples()]
            return condition(last[0])

        wait_until(holds, deadline_s=30, process=self.process, what=what, poll_s=0.02)
        return last[0]

    @property
    def workers(self) -> list[int]:
        return [one.pid for one in family(self.process.pid)[1:]]


def body(steps: int) -> str:
    told = {"name": "steps", "datatype": "INT64", "shape": [1], "data": [steps]}
    return json.dumps({"inputs": [told]})


def value(samples: Samples, name: str, **labels: str) -> float:
    """The sum over the series that have these labels."""
    return sum(
        number
        for (found, own), number in samples.items()
        if found == f"infersweep_{name}" and labels.items() <= dict(own).items()
    )


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """Two workers, in a folder where an earlier run left its files."""
    folder = tmp_path_factory.mktemp("fastapi")
    placement = Placement(cpus=(0, 1), usable_cpus=2, slo_ms=SLO_MS)
    launch, model = plan_launch(
        "fastapi",
        write_steps(folder / "given"),
        placement,
        repository=folder / "placed",
        work_folder=folder,
    )
    left = Path(launch.env["PROMETHEUS_MULTIPROC_DIR"]) / "counter_1.db"
    left.write_bytes(b"of an earlier run")
    with RunningProcess(launch.argv, env=launch.env, log=folder / "log") as process:
        wait_ready(launch.url, model.name, deadline_s=60, process=process, label="fastapi")
        server = Served(launch, process)
        server.wait_for(lambda found: value(found, "instances") == 2, "two instances")
        assert not left.exists()
        yield server
    assert not left.parent.exists()


def test_the_scrape_has_every_row_of_the_table_and_is_well_formed(served: Served) -> None:
    served.infer()
    served.wait_for(lambda found: value(found, "requests_total") > 0, "a count")
    text = served.text()
    rows = {row.name: row for row in SERVER_METRICS if "fastapi" in row.by}
    families = {one.name: one for one in text_string_to_metric_families(text)}
    assert families.keys() == rows.keys()
    for name, row in rows.items():
        assert (families[name].type, families[name].documentation) == (row.kind, row.help)
        for sample in families[name].samples:
            assert sample.labels.keys() - {"le"} == set(row.labels)
    checked = subprocess.run(
        ["promtool", "check", "metrics"], input=text, capture_output=True, text=True, check=False
    )
    assert (checked.returncode, checked.stdout, checked.stderr) == (0, "", "")


def test_counts_are_those_of_both_workers_together(served: Served) -> None:
    before = served.samples()
    answered: list[str] = []
    while len(set(answered)) < 2 or len(answered) < 10:
        answered.append(served.infer())
    assert [served.status("POST", INFER, b"{}") for _ in range(2)] == [400, 400]
    assert served.status("POST", "/v2/models/nobody/infer", b"{}") == 404
    assert served.status("DELETE", INFER) == 405
    for n in range(3):
        assert served.status("GET", f"/nowhere/{n}") == 404
    sent = len(answered) + 2 + 1 + 1 + 3

    def more(found: Samples, name: str, **labels: str) -> float:
        return value(found, name, **labels) - value(before, name, **labels)

    after = served.wait_for(lambda found: more(found, "http_requests_total") == sent, "all counted")
    assert more(after, "http_requests_total", route=ROUTE, status="200") == len(answered)
    assert more(after, "http_requests_total", route=ROUTE, status="400") == 2
    assert more(after, "http_requests_total", route=ROUTE, status="404") == 1
    assert more(after, "http_requests_total", route=ROUTE, method="DELETE", status="405") == 1
    assert more(after, "http_requests_total", route="unmatched", status="404") == 3
    assert more(after, "http_request_seconds_count") == sent
    model = {"model": "steps", "version": "1"}
    assert more(after, "requests_total", **model, outcome="ok") == len(answered)
    assert more(after, "requests_total", **model, outcome="client_fault") == 2
    assert more(after, "requests_total") == len(answered) + 2
    assert more(after, "requests_within_slo_total", **model) == len(answered)
    for name in ("queue_seconds", "compute_seconds", "request_seconds", "batch_rows"):
        assert more(after, f"{name}_count", **model) == len(answered)
    inside = more(after, "queue_seconds_sum") + more(after, "compute_seconds_sum")
    assert (
        0 < inside <= more(after, "request_seconds_sum") <= more(after, "http_request_seconds_sum")
    )
    assert value(after, "request_seconds_bucket", le=str(SLO_MS / 1e3)) == value(
        after, "request_seconds_count"
    )


def test_the_arbiter_knows_the_processes_and_their_threads(served: Served) -> None:
    found = served.samples()
    assert value(found, "processes") == value(found, "instances") == len(served.workers) == 2
    assert value(found, "loaded_versions", model="steps") == 1
    threads = sum(one.num_threads() for one in family(served.process.pid)[1:])
    assert value(found, "threads") == threads


def test_the_port_and_the_signals_are_the_arbiters_alone(served: Served) -> None:
    port = urlsplit(str(served.launch.metrics_url)).port
    for worker in served.workers:
        sockets = psutil.Process(worker).net_connections("tcp")
        assert port not in [one.laddr.port for one in sockets if one.status == "LISTEN"]
    arbiter = served.process.pid
    threads = {int(task.name) for task in Path(f"/proc/{arbiter}/task").iterdir()} - {arbiter}
    assert threads
    for thread in threads:
        told = Path(f"/proc/{arbiter}/task/{thread}/status").read_text().splitlines()
        (blocked,) = [int(line.split()[1], 16) for line in told if line.startswith("SigBlk")]
        for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGHUP):
            assert blocked & 1 << number - 1


@pytest.fixture(scope="module")
def long_steps(served: Served) -> int:
    """How many steps keep a worker busy for about 0.3 s."""
    took_s = []
    for _ in range(3):
        began = time.monotonic()
        served.infer(50)
        took_s.append(time.monotonic() - began)
    return int(50 * 0.3 / min(took_s))


def test_a_scrape_does_not_wait_for_saturated_workers(served: Served, long_steps: int) -> None:
    def timed(call: Callable[[], object]) -> float:
        began = time.monotonic()
        call()
        return time.monotonic() - began

    count = 6
    with ThreadPoolExecutor(count) as pool:
        running = [pool.submit(timed, lambda: served.infer(long_steps)) for _ in range(count)]
        busy = served.wait_for(lambda found: value(found, "pending") >= 2, "requests that wait")
        scrapes_s = [timed(served.text) for _ in range(3)]
        assert not all(one.done() for one in running)
        requests_s = [one.result() for one in running]
    assert 1 <= value(busy, "in_flight") - value(busy, "pending") <= 2
    assert statistics.median(scrapes_s) < min(requests_s)
    served.wait_for(lambda found: value(found, "in_flight") == 0, "none in flight")


def test_a_client_that_goes_away_is_counted(served: Served, long_steps: int) -> None:
    before = served.samples()
    connection = served.begin(2 * long_steps)
    served.wait_for(lambda found: value(found, "in_flight") == 1, "one in flight")
    connection.close()

    def gone(found: Samples) -> float:
        return value(found, "http_requests_total", route=ROUTE, status="499")

    after = served.wait_for(lambda found: gone(found) == gone(before) + 1, "a 499")
    cancelled = {"outcome": "cancelled"}
    assert (
        value(after, "requests_total", **cancelled)
        == value(before, "requests_total", **cancelled) + 1
    )


def test_a_killed_worker_is_a_restart_and_takes_no_counts_with_it(
    served: Served, long_steps: int
) -> None:
    """Killed with a request in flight, and before it had filled one of its files."""
    before = served.samples()
    connection = served.begin(20 * long_steps)
    served.wait_for(lambda found: value(found, "in_flight") == 1, "one in flight")
    victim = _busiest(served.workers)
    folder = Path(served.launch.env["PROMETHEUS_MULTIPROC_DIR"])
    (folder / f"summary_{victim}.db").touch()
    os.kill(victim, signal.SIGKILL)
    with pytest.raises((ConnectionError, http.client.HTTPException)):
        connection.getresponse()
    served.wait_for(lambda found: value(found, "worker_restarts_total") == 1, "a restart")
    served.wait_for(lambda found: value(found, "in_flight") == 0, "none in flight")
    after = served.wait_for(lambda found: value(found, "instances") == 2, "two instances again")
    assert victim not in served.workers
    assert value(after, "processes") == 2
    lower = {
        series: (number, after.get(series))
        for series, number in before.items()
        if series[0].endswith(("_total", "_bucket", "_count", "_sum"))
        and number > after.get(series, -1)
    }
    assert not lower


def _busiest(pids: list[int]) -> int:
    """The first process that has had a CPU for a while."""

    def ticks(pid: int) -> int:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return int(fields[11]) + int(fields[12])

    earlier = {pid: ticks(pid) for pid in pids}
    while True:
        spent = {pid: ticks(pid) - earlier[pid] for pid in pids}
        most = max(spent, key=lambda pid: spent[pid])
        if spent[most] > 5:
            return most


def test_a_worker_that_was_told_to_end_is_no_restart(served: Served) -> None:
    """It also shows that the arbiter still hears its signals."""
    before = served.value("worker_restarts_total")
    os.kill(served.process.pid, signal.SIGTTOU)
    served.wait_for(lambda found: value(found, "processes") == 1, "one process")
    after = served.wait_for(lambda found: value(found, "instances") == 1, "one instance")
    assert value(after, "worker_restarts_total") == before
    os.kill(served.process.pid, signal.SIGTTIN)
    after = served.wait_for(lambda found: value(found, "instances") == 2, "two instances")
    assert value(after, "worker_restarts_total") == before


def test_a_port_that_is_taken_is_one_line_and_the_end(served: Served, tmp_path: Path) -> None:
    """The port of the server that runs, whose metrics are left alone as well."""
    log = tmp_path / "log"
    counted = served.value("http_requests_total")
    address = urlsplit(served.launch.url).netloc
    argv = [part.replace(address, f"127.0.0.1:{free_port()}") for part in served.launch.argv]
    with RunningProcess(argv, env=served.launch.env, log=log) as process:
        assert process.wait(30) == MachineError.exit_code
    (line,) = [line for line in log.read_text().splitlines() if "[INFO]" not in line]
    assert line.startswith(f"port {urlsplit(str(served.launch.metrics_url)).port} on 127.0.0.1")
    assert served.value("http_requests_total") >= counted


def test_no_scrape_is_rendered_while_a_worker_is_forked() -> None:
    rendering, forked = threading.Event(), threading.Event()
    late: list[bool] = []

    class Slow(Collector):
        def collect(self) -> list[Family]:
            rendering.set()
            late.append(not forked.wait(0.2))
            return []

    port = free_port()
    exporter = Exporter("127.0.0.1", port)
    exporter.start(Slow())
    with ThreadPoolExecutor(1) as pool:
        scrape = pool.submit(requests.get, f"http://127.0.0.1:{port}/metrics", timeout=20)
        assert rendering.wait(20)
        child = os.fork()
        if child == 0:
            os._exit(0)
        forked.set()
        assert scrape.result().status_code == 200
    assert late == [True]
    assert os.waitpid(child, 0) == (child, 0)
    exporter._server.shutdown()
    exporter._server.server_close()
