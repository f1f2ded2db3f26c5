"""The baseline's metrics without a server: what is measured, how it is counted, what is read."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable, Iterable
from pathlib import Path
from types import SimpleNamespace

import pytest
from fastapi import FastAPI, Request, Response
from prometheus_client import CollectorRegistry
from prometheus_client.core import Metric as Family
from prometheus_client.mmap_dict import MmapedDict, mmap_key
from prometheus_client.multiprocess import MultiProcessCollector
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from serving.backends.base import ServePlan
from serving.backends.fastapi import gunicorn_hooks, metering
from serving.backends.fastapi.arbiter import ArbiterMetrics
from serving.backends.fastapi.launch import BACKEND
from serving.backends.fastapi.metering import INFERENCE, Exchange, Inference, Metering
from serving.backends.fastapi.metrics import Metrics
from serving.backends.fastapi.settings import Settings
from serving.backends.fastapi.worker_files import WorkerFiles
from serving.errors import MachineError, UsageError
from serving.metrics import table
from serving.metrics.buckets import PHASE_NS
from serving.models.repository import Model

INFER = "/v2/models/{name}/infer"
SLO_NS = 7_654_321
MODEL = {"model": "tiny", "version": "1"}


class Metered:
    """An application under the middleware, and what a scrape would say of it."""

    def __init__(self, app: ASGIApp) -> None:
        self._exchanges: list[Exchange] = []
        self._app = Metering(app, self._exchanges.append)
        self._registry = CollectorRegistry()
        self._metrics = Metrics("tiny", 1, SLO_NS, self._registry)

    def request(
        self, path: str, method: str = "POST", send: Send | None = None, *, leaves: bool = False
    ) -> list[Message]:
        """The messages of the answer; the client may leave once its request is there."""
        sent: list[Message] = []

        async def keep(message: Message) -> None:
            sent.append(message)

        asyncio.run(self._app(_scope(path, method), _client(leaves), send or keep))
        return sent

    def _publish(self) -> None:
        self._metrics.publish(self._exchanges, in_flight=0, pending=0)
        self._exchanges.clear()

    def value(self, sample: str, **labels: str) -> float | None:
        self._publish()
        return self._registry.get_sample_value(sample, labels)

    def samples(self, name: str) -> dict[tuple[str, ...], float]:
        """Label values in the order of their names, and the value."""
        self._publish()
        return {
            tuple(value for _, value in sorted(sample.labels.items())): sample.value
            for family in self._registry.collect()
            for sample in family.samples
            if sample.name == name
        }


def _scope(path: str, method: str) -> Scope:
    return {
        "type": "http",
        "method": method,
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "headers": [],
        "http_version": "1.1",
        "scheme": "http",
        "server": ("127.0.0.1", 80),
        "client": ("127.0.0.1", 1),
        "root_path": "",
    }


def _client(leaves: bool) -> Receive:
    messages = iter(({"type": "http.request", "body": b"", "more_body": False},))

    async def receive() -> Message:
        for message in messages:
            return message
        if not leaves:
            await asyncio.Event().wait()
        return {"type": "http.disconnect"}

    return receive


def baseline(**stamps: int) -> FastAPI:
    """A route like the one that infers, with an inference of these numbers."""
    app = FastAPI()

    @app.post(INFER)
    async def infer(request: Request, name: str) -> Response:
        await request.body()
        told = request.scope[INFERENCE] = Inference()
        for attribute, value in stamps.items():
            setattr(told, attribute, value)
        if name == "broken":
            raise RuntimeError("the engine failed")
        return Response(status_code=400 if name == "wrong" else 200)

    return app


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """The middleware's clock, which stands still unless it is told."""
    now = SimpleNamespace(ns=1)
    monkeypatch.setattr(metering, "time", SimpleNamespace(monotonic_ns=lambda: now.ns))
    return now


def test_a_request_counts_under_its_route_not_under_its_path() -> None:
    metered = Metered(baseline())
    for name in ("a", "b", "c"):
        metered.request(f"/v2/models/{name}/infer")
    assert metered.samples("infersweep_http_requests_total") == {("POST", INFER, "200"): 3}
    seconds = metered.samples("infersweep_http_request_seconds_count")
    assert seconds == {("POST", INFER): 3}


def test_what_clients_invent_makes_one_series() -> None:
    metered = Metered(baseline())
    for n in range(5):
        metered.request(f"/wp-admin/{n}", "GET")
        metered.request("/v2/models/a/infer", f"INVENTED{n}")
        metered.request(f"/{n}", f"INVENTED{n}")
    assert metered.samples("infersweep_http_requests_total") == {
        ("GET", "unmatched", "404"): 5,
        ("other", INFER, "405"): 5,
        ("other", "unmatched", "404"): 5,
    }


def test_the_time_goes_on_to_the_end_of_the_answer(clock: SimpleNamespace) -> None:
    async def stream(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200})
        await send({"type": "http.response.body", "body": b"a", "more_body": True})
        await send({"type": "http.response.body", "body": b"b"})

    async def slowly(message: Message) -> None:
        clock.ns += 2_000_000_000

    metered = Metered(stream)
    metered.request("/", "GET", slowly)
    labels = {"method": "GET", "route": "unmatched"}
    assert metered.value("infersweep_http_request_seconds_sum", **labels) == 6


@pytest.mark.parametrize(
    ("name", "leaves", "status", "outcome"),
    [
        ("tiny", False, "200", "ok"),
        ("tiny", True, "499", "cancelled"),
        ("wrong", False, "400", "client_fault"),
        ("broken", False, "500", "server_fault"),
    ],
)
def test_every_end_of_an_inference_has_its_class(
    name: str, leaves: bool, status: str, outcome: str
) -> None:
    metered = Metered(baseline(rows=1, queued_ns=1, started_ns=2, computed_ns=3))
    if name == "broken":
        with pytest.raises(RuntimeError):
            metered.request(f"/v2/models/{name}/infer")
    else:
        metered.request(f"/v2/models/{name}/infer", leaves=leaves)
    assert metered.samples("infersweep_http_requests_total") == {("POST", INFER, status): 1}
    counted = {
        sample: value
        for (_, sample, _), value in metered.samples("infersweep_requests_total").items()
        if value
    }
    assert counted == {outcome: 1}
    answered = metered.value("infersweep_request_seconds_count", **MODEL)
    assert answered == (outcome == "ok")


def test_a_client_that_waits_is_left_waiting() -> None:
    """The look whether it is there must not end its connection's own wait."""
    listening = asyncio.Event()

    async def run() -> list[str]:
        got = []

        async def receive() -> Message:
            await listening.wait()
            return {"type": "http.disconnect"}

        async def app(scope: Scope, receive: Receive, send: Send) -> None:
            scope[INFERENCE] = Inference()
            await send({"type": "http.response.start", "status": 200})
            await send({"type": "http.response.body"})
            listening.set()
            got.append((await receive())["type"])

        async def send(message: Message) -> None:
            got.append(message["type"])

        await Metering(app, lambda _: None)(_scope("/", "POST"), receive, send)
        return got

    assert asyncio.run(run()) == ["http.response.start", "http.response.body", "http.disconnect"]


def test_an_inference_is_divided_into_waiting_and_computing(clock: SimpleNamespace) -> None:
    clock.ns = 100_000_000
    stamps = {"queued_ns": 40_000_000, "started_ns": 50_000_000, "computed_ns": 80_000_000}
    metered = Metered(baseline(rows=3, **stamps))
    metered.request("/v2/models/tiny/infer")
    sums = {
        "infersweep_queue_seconds_sum": 0.01,
        "infersweep_compute_seconds_sum": 0.03,
        "infersweep_request_seconds_sum": 0.06,
        "infersweep_batch_rows_sum": 3,
    }
    assert {name: metered.value(name, **MODEL) for name in sums} == pytest.approx(sums)
    assert metered.value("infersweep_batch_rows_bucket", **MODEL, le="2.0") == 0
    assert metered.value("infersweep_batch_rows_bucket", **MODEL, le="4.0") == 1


def test_a_request_that_is_refused_before_it_waits_has_no_phases() -> None:
    metered = Metered(baseline())
    metered.request("/v2/models/wrong/infer")
    assert metered.value("infersweep_queue_seconds_count", **MODEL) == 0
    assert metered.value("infersweep_batch_rows_count", **MODEL) == 0


@pytest.mark.parametrize(("late_ns", "within"), [(0, 1), (1, 0)])
def test_the_objective_is_kept_to_the_nanosecond(
    clock: SimpleNamespace, late_ns: int, within: int
) -> None:
    queued_ns = 5
    clock.ns = queued_ns + SLO_NS + late_ns
    stamps = {"queued_ns": queued_ns, "started_ns": queued_ns, "computed_ns": queued_ns}
    metered = Metered(baseline(rows=1, **stamps))
    metered.request("/v2/models/tiny/infer")
    bound = str(SLO_NS / 1e9)
    assert metered.value("infersweep_requests_within_slo_total", **MODEL) == within
    assert metered.value("infersweep_request_seconds_bucket", **MODEL, le=bound) == within


@pytest.mark.parametrize("duration_ns", [PHASE_NS[0], PHASE_NS[7], PHASE_NS[-1]])
def test_a_duration_on_a_bound_counts_below_it(clock: SimpleNamespace, duration_ns: int) -> None:
    clock.ns = 1 + duration_ns
    metered = Metered(baseline(rows=1, queued_ns=1, started_ns=1, computed_ns=1))
    metered.request("/v2/models/tiny/infer")
    bound = str(duration_ns / 1e9)
    assert metered.value("infersweep_request_seconds_bucket", **MODEL, le=bound) == 1


def test_without_an_objective_nothing_is_counted_by_it() -> None:
    registry = CollectorRegistry()
    Metrics("tiny", 1, None, registry)
    assert table.WITHIN_SLO.name not in {family.name for family in registry.collect()}


def _write(file: Path, value: float) -> None:
    values = MmapedDict(str(file))
    key = mmap_key("requests", "requests_total", [], [], "Requests")
    values.write_value(key, value, 0.0)
    values.close()


def _total(families: Iterable[Family]) -> float:
    return sum(sample.value for family in families for sample in family.samples)


@pytest.mark.parametrize("kept_bytes", [0, 2, 20, 60])
def test_a_file_that_a_killed_worker_left_unfinished_is_left_out(
    tmp_path: Path, kept_bytes: int, capsys: pytest.CaptureFixture[str]
) -> None:
    for pid, value in ((1, 3.0), (2, 4.0), (3, 5.0)):
        _write(tmp_path / f"counter_{pid}.db", value)
    damaged = tmp_path / "counter_2.db"
    damaged.write_bytes(damaged.read_bytes()[:kept_bytes])
    library, ours = MultiProcessCollector(None, str(tmp_path)), WorkerFiles(tmp_path)
    with pytest.raises((struct.error, RuntimeError)):
        library.collect()
    assert [_total(ours.collect()), _total(ours.collect())] == [8, 8]
    assert capsys.readouterr().err.count(str(damaged)) == 1


def test_the_files_of_an_earlier_run_are_wiped_and_no_others(tmp_path: Path) -> None:
    _write(tmp_path / "counter_1.db", 3.0)
    (tmp_path / "notes.txt").write_text("mine")
    metrics = ArbiterMetrics(tmp_path, workers=list)
    assert table.REQUESTS.name not in {family.name for family in metrics.collect()}
    assert [file.name for file in tmp_path.iterdir()] == ["notes.txt"]
    metrics.remove()
    assert tmp_path.exists()


def test_a_folder_that_cannot_be_written_is_one_line(tiny: Model, tmp_path: Path) -> None:
    taken = tmp_path / "taken"
    taken.write_text("a file")
    with pytest.raises(MachineError, match="cannot be written") as raised:
        ArbiterMetrics(taken, workers=list)
    assert "\n" not in str(raised.value)
    with pytest.raises(MachineError, match="cannot be made") as raised:
        BACKEND.launch(ServePlan("fastapi", "", tiny, (0,), 8000, taken))
    assert "\n" not in str(raised.value)


def test_two_launches_share_no_folder(tiny: Model, tmp_path: Path) -> None:
    plan = ServePlan("fastapi", "", tiny, (0,), 8000, tmp_path)
    folders = [BACKEND.launch(plan).env["PROMETHEUS_MULTIPROC_DIR"] for _ in range(2)]
    assert len(set(folders)) == 2
    assert all(Path(folder).parent == tmp_path for folder in folders)


def _ended(server: SimpleNamespace, pid: int) -> None:
    """As gunicorn does: struck off first, then told."""
    server.WORKERS.remove(pid)
    gunicorn_hooks.child_exit(server, SimpleNamespace(pid=pid))


def _started(server: SimpleNamespace, pid: int) -> None:
    gunicorn_hooks.pre_fork(server, None)
    server.WORKERS.append(pid)


def _crash(server: SimpleNamespace) -> None:
    _ended(server, 1)
    _started(server, 3)


def _fewer(server: SimpleNamespace) -> None:
    server.num_workers = 1
    _ended(server, 1)


def _reload(server: SimpleNamespace) -> None:
    for pid in (3, 4):
        _started(server, pid)
    for pid in (1, 2):
        _ended(server, pid)


def _shutdown(server: SimpleNamespace) -> None:
    for pid in (1, 2):
        _ended(server, pid)


@pytest.mark.parametrize(
    ("happens", "restarts"), [(_crash, 1), (_fewer, 0), (_reload, 0), (_shutdown, 0)]
)
def test_only_an_end_that_nobody_ordered_is_a_restart(
    tmp_path: Path, happens: Callable[[SimpleNamespace], None], restarts: int
) -> None:
    server = SimpleNamespace(WORKERS=[1, 2], num_workers=2)
    server.metrics = ArbiterMetrics(tmp_path / "metrics", workers=list)
    happens(server)
    counted = {family.name: _total([family]) for family in server.metrics.collect()}
    assert counted[table.RESTARTS.name] == restarts


def test_the_gauges_of_a_worker_that_ended_are_gone(tmp_path: Path) -> None:
    metrics = ArbiterMetrics(tmp_path, workers=list)
    names = [f"{kind}_{pid}.db" for kind in ("counter", "gauge_livesum") for pid in (1, 2)]
    for name in names:
        _write(tmp_path / name, 1.0)
    metrics.ended(1, missing=True)
    left = {file.name for file in tmp_path.iterdir()}
    assert set(names) - left == {"gauge_livesum_1.db"}


def test_without_a_port_the_hooks_do_nothing(
    tiny: Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = Settings(repository=tiny.root, model="tiny", engine="x", inference_threads=1)
    for name, value in settings.to_environment().items():
        monkeypatch.setenv(name, value)
    folder = tmp_path / "metrics"
    monkeypatch.setenv("PROMETHEUS_MULTIPROC_DIR", str(folder))
    server, worker = SimpleNamespace(), SimpleNamespace(pid=1)
    gunicorn_hooks.on_starting(server)
    gunicorn_hooks.when_ready(server)
    gunicorn_hooks.pre_fork(server, worker)
    gunicorn_hooks.post_fork(server, worker)
    gunicorn_hooks.child_exit(server, worker)
    gunicorn_hooks.on_exit(server)
    assert not folder.exists()


def test_a_port_without_a_folder_ends_the_arbiter_with_one_line(
    tiny: Model, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = Settings(
        repository=tiny.root, model="tiny", engine="x", inference_threads=1, metrics_port=9
    )
    for name, value in settings.to_environment().items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("PROMETHEUS_MULTIPROC_DIR", raising=False)
    with pytest.raises(SystemExit) as ended:
        gunicorn_hooks.on_starting(SimpleNamespace())
    assert ended.value.code == UsageError.exit_code
    told = capsys.readouterr().err
    assert "PROMETHEUS_MULTIPROC_DIR" in told
    assert told.count("\n") == 1


def test_settings_survive_the_environment_and_none_is_left_out() -> None:
    plain = Settings(repository=Path("/r"), model="m", engine="e", inference_threads=1)
    assert not any("SLO" in name or "PORT" in name for name in plain.to_environment())
    full = plain.model_copy(update={"slo_ms": 12.5, "metrics_port": 9000})
    assert full.to_environment()["INFERSWEEP_FASTAPI_SLO_MS"] == "12.5"
    for settings in (plain, full):
        assert Settings.from_environment(settings.to_environment()) == settings
    assert full.slo_ns == 12_500_000


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("SLO_MS", value) for value in ("None", "0", "-1", "nan", "inf")),
        *(("METRICS_PORT", value) for value in ("None", "0", "70000")),
    ],
)
def test_a_setting_that_cannot_be_is_named_in_one_line(name: str, value: str) -> None:
    plain = Settings(repository=Path("/r"), model="m", engine="e", inference_threads=1)
    variable = f"INFERSWEEP_FASTAPI_{name}"
    with pytest.raises(UsageError, match=variable) as raised:
        Settings.from_environment({**plain.to_environment(), variable: value})
    assert "\n" not in str(raised.value)
