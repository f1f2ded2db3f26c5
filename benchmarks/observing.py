"""What being watched costs: ``make bench-observe``.

Throughput with a Prometheus that scrapes every second, over throughput without one, in turns that
follow each other. Prometheus runs on the same two CPUs as server and generator.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from functools import partial
from importlib.metadata import version
from pathlib import Path
from unittest.mock import patch

from benchmarks import rows
from benchmarks.load import CLIENT_CPU, SERVER_CPU, Bench
from benchmarks.observe_demo import watching
from benchmarks.peers import wrk
from benchmarks.rows import Row, at_least, stated
from loadtest.folder import ResultsFolder
from loadtest.live import LoadLabels
from loadtest.manifest import describe_run
from loadtest.observing.prometheus import watched
from loadtest.observing.publishing import Publishing, published
from loadtest.payload import write_payloads
from loadtest.prepare import payloads_from
from loadtest.resources.sampler import Sampler
from loadtest.runner import Fleet, generate
from loadtest.targets import FOLDER_VARIABLE, announced
from serving.deployment import Placement, Server, running
from serving.models.repository import Model, find_model
from serving.models.zoo.build import ensure_built
from serving.parity import reference_for
from tests.sample_models import write_tiny
from tests.sample_trials import settings

OF_UNWATCHED = 0.98
SERVERS = ("onnxruntime", "fastapi", "triton")
USERS = 8


def measure_servers(bench: Bench) -> Iterator[Row]:
    """Wrk on one CPU, the server on the other, Prometheus wherever it finds time."""
    for label in SERVERS:
        with _server(bench, label) as server:
            ratios = _ratios(bench, partial(_server_rate, bench, server))
        yield at_least(f"{label}, scraped over not", ratios, OF_UNWATCHED)


def _server_rate(bench: Bench, server: Server, *, scraped: bool) -> float:
    target = bench.target(server.url)
    with _scraped(bench, server.launch.metrics_url) if scraped else nullcontext():
        return wrk(target, USERS, bench.seconds, CLIENT_CPU).requests_per_s


def measure_generator(bench: Bench) -> Iterator[Row]:
    """At its ceiling, on the null server: counts kept for whoever asks, exporter, samples."""
    folder = ResultsFolder(bench.folder / "run")
    asked = settings(model=bench.model.name, backends=("null",), levels=(USERS,))
    folder.write_manifest(describe_run(bench.model, asked, "make bench-observe"))
    with _server(bench, "null") as server:

        def rate(*, scraped: bool) -> float:
            spec = bench.spec(server.url, "closed", USERS, bench.seconds, null=True)
            with ExitStack() as stack:
                if scraped:
                    labels = _label(folder, bench.model.name)
                    spec = spec.model_copy(update={"labels": labels, "slo_ns": 1_000_000})
                    sampler = stack.enter_context(Sampler(folder.resources))
                    sampler.watch("null", server.process.pid if server.process else None)
                    how = Publishing((CLIENT_CPU,), None, lambda _: None, print)
                    stack.enter_context(published(folder, how))
                    stack.enter_context(_scraped(bench, None))
                (output,) = generate(spec, Fleet((CLIENT_CPU,)), bench.folder / "generator.log")
            return output.outcomes["ok"] / output.window_s

        yield at_least(
            "generator, published and scraped over not", _ratios(bench, rate), OF_UNWATCHED
        )
        yield stated("generator on null, unwatched", [rate(scraped=False)], "requests/s")


def _label(folder: ResultsFolder, model: str) -> Path:
    told = LoadLabels(
        backend="null", model=model, scenario="closed", slo_ns=1_000_000, ceiling_rps=None
    )
    file = folder.live / "bench.json"
    file.write_text(told.model_dump_json())
    return file


def _ratios(bench: Bench, rate: Callable[..., float]) -> Sequence[float]:
    """One per turn; which comes first changes, so that a drift does not favour either."""
    found = []
    for turn in range(bench.turns):
        order = (True, False) if turn % 2 else (False, True)
        rates = {scraped: rate(scraped=scraped) for scraped in order}
        found.append(rates[True] / rates[False])
    return found


@contextmanager
def _server(bench: Bench, label: str) -> Iterator[Server]:
    logs = bench.folder / "logs"
    logs.mkdir(exist_ok=True)
    repository = bench.folder / f"repository-{label}"
    placement = Placement((SERVER_CPU,), 2)
    with running(label, bench.model, placement, repository=repository, logs=logs) as server:
        yield server


@contextmanager
def _scraped(bench: Bench, url: str | None) -> Iterator[None]:
    """A Prometheus for what is announced, and for ``url``."""
    how = watching(bench.folder / "prometheus")
    labels = {"job": "server", "backend": "bench", "run": "bench"}
    with announced(url, labels, print), watched(how):
        yield


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.observing", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="two short turns")
    parser.add_argument("--model", default="", help="of the zoo, instead of a tiny one")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="infersweep-observing-") as scratch:
        folder = Path(scratch)
        model = _model(asked.model, folder)
        payloads = payloads_from(model, reference_for(model))
        write_payloads(folder / "payloads", payloads)
        turns, seconds = (2, 3.0) if asked.quick else (5, 6.0)
        bench = Bench(model, payloads[0], folder, turns, seconds)
        with patch.dict("os.environ", {FOLDER_VARIABLE: str(folder / "targets")}):
            found = [*measure_servers(bench), *measure_generator(bench)]
    rows.write("observing", found, {"prometheus_client": version("prometheus_client")})


def _model(name: str, folder: Path) -> Model:
    if not name:
        return write_tiny(folder / "models")
    found = find_model(name)
    ensure_built(found, print)
    return found


if __name__ == "__main__":
    main()
