"""``infersweep load``: any scenario on one server, running already or started here."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated, Literal, cast, get_args

import typer
from rich.console import Console

from loadtest.cli.measure import Run, measure
from loadtest.cli.options import (
    DEFAULT_REPOSITORY,
    ClientCpusOption,
    LinkOption,
    LinkPerConnectionOption,
    MetricsPortOption,
    ModelOption,
    RepositoryOption,
    SloOption,
    TimeoutOption,
    parse_address,
    parse_headers,
    parse_levels,
    parse_link,
    parse_parameters,
    parse_share,
    parse_slo,
    require_positive,
    split_of,
)
from loadtest.engine import engine_for
from loadtest.mlperf import SCENARIOS as MLPERF_SCENARIOS
from loadtest.payload import Encoding
from loadtest.results import Settings
from loadtest.runner import Fleet, worker_command
from loadtest.scenarios import find_scenario, make_load
from serving.backends.registry import resolve
from serving.errors import UsageError
from serving.host import CpuSplit, cpu_budget, parse_cpus
from serving.models.repository import find_model
from serving.preflight import check_server
from serving.readiness import Access, is_grpc

NAME = "load"
MASTER_PORT = 5557
EXAMPLES = (
    "Examples: `infersweep load --url http://127.0.0.1:8000 --model image_classifier` · "
    "`infersweep load --backend onnxruntime --scenario server --levels 50,100` · "
    "`infersweep load --backend onnxruntime --scenario server --levels 20 --link lte` · "
    "`infersweep load --url grpc://edge-1:8001 --scenario bursty -p burstiness=8 --levels 40` · "
    "`infersweep load --url http://edge-1:8000 --master 0.0.0.0 --expect-workers 2` and, on two "
    "other hosts, `infersweep load --worker MASTER`"
)


def run(
    url: Annotated[
        str | None, typer.Option(help="address of a server that runs: http, https, grpc, grpcs")
    ] = None,
    backend: Annotated[str | None, typer.Option(help="or a backend to start here")] = None,
    model: ModelOption = "image_classifier",
    scenario: Annotated[str, typer.Option(help="see `infersweep scenarios`")] = "closed",
    levels: Annotated[
        str | None, typer.Option(help="comma-separated: users, or requests/s [scenario's own]")
    ] = None,
    parameter: Annotated[
        list[str] | None, typer.Option("--parameter", "-p", help="NAME=VALUE of the scenario")
    ] = None,
    duration: Annotated[
        float | None, typer.Option(help="seconds of one measured window [scenario's own]")
    ] = None,
    until_confident: Annotated[
        str | None, typer.Option(help="such as 5%: go on until p99 is known so closely")
    ] = None,
    limit: Annotated[float, typer.Option(help="longest window in seconds for that")] = 300.0,
    repeats: Annotated[int, typer.Option(help="windows per level")] = 1,
    timeout: TimeoutOption = 10.0,
    seed: Annotated[int, typer.Option(help="schedule, order of trials and of inputs")] = 1,
    batch: Annotated[int, typer.Option(help="rows in one request", min=1)] = 1,
    encoding: Annotated[str, typer.Option(help="binary or json; gRPC is chosen by --url")] = (
        "binary"
    ),
    shared_memory: Annotated[
        bool, typer.Option("--shared-memory", help="inputs through system shared memory")
    ] = False,
    header: Annotated[
        list[str] | None, typer.Option("--header", "-H", help="'Name: value' on every request")
    ] = None,
    ca_file: Annotated[Path | None, typer.Option(help="certificates to trust for TLS")] = None,
    link: LinkOption = None,
    link_per_connection: LinkPerConnectionOption = False,
    connections: Annotated[int, typer.Option(help="most that a generator opens", min=1)] = 1024,
    engine: Annotated[str | None, typer.Option(help="native or python [by address]")] = None,
    driver: Annotated[
        str, typer.Option(help="locust, or loadgen: MLPerf's own for its four scenarios")
    ] = "locust",
    processes: Annotated[int, typer.Option(help="generator processes here", min=1)] = 1,
    master: Annotated[
        str | None, typer.Option(help="HOST[:PORT] to listen on for workers on other hosts")
    ] = None,
    expect_workers: Annotated[int, typer.Option(help="workers to wait for", min=1)] = 1,
    worker: Annotated[
        str | None, typer.Option(help="HOST[:PORT] of a master that this one generates for")
    ] = None,
    server_cpus: Annotated[str | None, typer.Option(help="for --backend, such as 0-2")] = None,
    client_cpus: ClientCpusOption = None,
    out: Annotated[Path | None, typer.Option(help="results folder")] = None,
    slo: SloOption = None,
    metrics_port: MetricsPortOption = None,
    repository: RepositoryOption = DEFAULT_REPOSITORY,
) -> int:
    """Check a server's answers, then load it by a scenario; the report is as that of compare."""
    if worker is not None:
        return _work_for(worker, client_cpus)
    chosen = find_scenario(scenario)
    label = _label(url, backend)
    found = find_model(model, repository)
    access = Access(parse_headers(header or []), ca_file)
    fleet, split = _fleet(server_cpus, client_cpus, processes, master, expect_workers)
    spoken = "grpc" if url is not None and is_grpc(url) else encoding
    settings = Settings(
        model=model,
        backends=(label,),
        scenario=scenario,
        parameters=parse_parameters(parameter or []),
        level_name=chosen.level_name,
        levels=parse_levels(levels) if levels else chosen.levels,
        duration_s=require_positive(
            chosen.duration_s if duration is None else duration, "--duration"
        ),
        repeats=int(require_positive(repeats, "--repeats")),
        timeout_s=require_positive(timeout, "--timeout"),
        batch_size=batch,
        seed=seed,
        slo_ms=parse_slo(slo),
        driver=_driver(driver, scenario),
        engine=engine_for(url or f"{_scheme(spoken)}://localhost", engine),
        encoding=_encoding(spoken),
        shared_memory=shared_memory,
        headers=tuple(access.headers),
        connections=connections,
        link=parse_link(link, (label,), per_connection=link_per_connection),
        link_per_connection=link_per_connection,
        processes=fleet.count,
        until_confident=parse_share(until_confident, "--until-confident"),
        limit_s=require_positive(limit, "--limit"),
        server_cpus=split.server,
        client_cpus=split.client,
    )
    _require_possible(settings)
    if settings.link and fleet.remote_workers:
        raise UsageError(
            "a link is on this host, and so must its generators be", hint="Leave --master out."
        )
    if url is not None:
        check_server(url, found, access)
    usable = cpu_budget().usable
    return measure(
        Console(), Run(found, settings, fleet, usable, out, access, metrics_port=metrics_port)
    )


def _fleet(
    server_cpus: str | None,
    client_cpus: str | None,
    processes: int,
    master: str | None,
    expect_workers: int,
) -> tuple[Fleet, CpuSplit]:
    """Who generates: processes here, or workers that come from elsewhere."""
    if master is not None:
        split = split_of(server_cpus, client_cpus)
        bind = parse_address(master, MASTER_PORT)
        return Fleet(split.client, processes=0, remote_workers=expect_workers, bind=bind), split
    split = split_of(server_cpus, client_cpus, clients=processes)
    return Fleet(split.client, processes=processes), split


def _label(url: str | None, backend: str | None) -> str:
    if (url is None) == (backend is None):
        raise UsageError(
            "name one server", hint="Give --url of one that runs, or --backend to start one here."
        )
    label = f"remote:{url}" if url is not None else str(backend)
    resolve(label)
    return label


def _scheme(encoding: str) -> str:
    return "grpc" if encoding == "grpc" else "http"


def _encoding(text: str) -> Encoding:
    if text in get_args(Encoding):
        return cast("Encoding", text)
    raise UsageError(f"there is no encoding {text!r}", hint="Choose binary, json or grpc.")


def _driver(text: str, scenario: str) -> Literal["locust", "loadgen"]:
    if text == "locust":
        return "locust"
    if text != "loadgen":
        raise UsageError(f"there is no driver {text!r}", hint="Choose locust or loadgen.")
    if scenario not in MLPERF_SCENARIOS:
        raise UsageError(
            f"LoadGen has no scenario {scenario!r}",
            hint=f"Choose {', '.join(MLPERF_SCENARIOS)}, or leave --driver out.",
        )
    return "loadgen"


def _require_possible(settings: Settings) -> None:
    """Everything that can be told before anything is started."""
    for level in settings.levels:
        make_load(settings.scenario, level, settings.parameters, settings.duration_s)
    if settings.until_confident is not None and settings.processes > 1:
        raise UsageError(
            "--until-confident needs one generator, which sees all samples",
            hint="Leave --processes and --master out, or give a longer --duration.",
        )
    if settings.driver == "loadgen" and (settings.processes > 1 or settings.encoding == "grpc"):
        raise UsageError(
            "LoadGen drives one process over HTTP",
            hint="Leave --processes, --master and gRPC out, or --driver.",
        )
    if settings.shared_memory and settings.link:
        raise UsageError("shared memory crosses no link", hint="Leave one of them out.")
    if settings.shared_memory and settings.encoding != "binary":
        raise UsageError(
            f"shared memory does not go with {settings.encoding}", hint="Leave one of them out."
        )


def _work_for(master: str, client_cpus: str | None) -> int:
    """Become a generator that takes its orders from a master on another host."""
    host, port = parse_address(master, MASTER_PORT)
    if client_cpus:
        os.sched_setaffinity(0, parse_cpus(client_cpus))
    Console().print(f"generating for the master at {host}:{port}; it ends this", highlight=False)
    sys.stdout.flush()
    command = worker_command(host, port)
    os.execv(command[0], command)
