"""A finished run as one table: a row per backend, level and repeat (tidy data).

H. Wickham, "Tidy Data", Journal of Statistical Software 59(10), 2014: each variable a column, each
observation a row. Units stand in the columns' names; what was not measured is ``None``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import get_args

from pydantic import BaseModel

from loadtest.analysis import QUANTILES, percentiles_ms, samples_of
from loadtest.delivered import Delivered, FramesRecord
from loadtest.explained import ServerTimings
from loadtest.folder import ResultsFolder
from loadtest.measures import decoding
from loadtest.observing.finished import run_name
from loadtest.observing.openmetrics import Progress
from loadtest.resources.record import Energy, ResourceUse, RoleUse
from loadtest.resources.sampler import GENERATOR, SERVER
from loadtest.results import OUTCOMES, Histograms, Manifest, Percentiles, Quantile, Trial
from serving.errors import ResultsError

Value = str | int | float | bool | None
Kind = type[str] | type[int] | type[float] | type[bool]
Cell = tuple[str, Kind, Value]
"""A column's name, the type of its values, and one of them."""

_BETWEEN = "; "
"""What separates the parts of a text that are several."""


@dataclass(frozen=True)
class Table:
    """Rows have only the columns that they know; what is missing is ``None``."""

    columns: Mapping[str, Kind]
    rows: list[dict[str, Value]]

    def full_rows(self) -> Iterator[list[Value]]:
        """Values of every column, in its order."""
        for row in self.rows:
            yield [row.get(name) for name in self.columns]


def table_of(folder: ResultsFolder, progress: Progress) -> Table:
    """Every finished trial, VALID or not.

    Raises:
        ResultsError: the folder is damaged or none, or holds no finished trial.
    """
    manifest, trials = folder.read_manifest(), folder.read_trials()
    if not trials:
        raise ResultsError(
            f"{folder.path} holds no finished trial", hint="Let the run go on, then repeat this."
        )
    name = run_name(folder)
    columns: dict[str, Kind] = {}
    rows = []
    for done, trial in enumerate(trials, 1):
        cells = list(_cells(name, manifest, trial, folder.read_histograms(trial.id)))
        columns |= {column: kind for column, kind, _ in cells}
        rows.append({column: value for column, _, value in cells})
        progress(done, len(trials))
    return Table(columns, rows)


def _cells(run: str, manifest: Manifest, trial: Trial, histograms: Histograms) -> Iterator[Cell]:
    yield from _run_cells(run, manifest)
    yield from _trial_cells(trial, manifest.settings.level_name)
    with decoding(trial.id):
        response = samples_of(histograms.response_time, trial.outcomes["not_sent"])
        yield from _percentile_cells("response", percentiles_ms(response))
        yield from _percentile_cells("service", percentiles_ms(samples_of(histograms.service_time)))
    yield "server_timings_missing", str, trial.server_timings_missing
    yield from _timing_cells(trial.server_timings)
    yield from _frames_cells(trial.frames)
    yield from _resource_cells(trial.resources)


def _run_cells(run: str, manifest: Manifest) -> Iterator[Cell]:
    """What all rows of a run share; with it, tables of several runs may be put together."""
    machine, settings = manifest.machine, manifest.settings
    yield "run", str, run
    yield "run_created", str, manifest.created
    yield "infersweep_version", str, manifest.infersweep_version
    yield "commit", str, manifest.commit
    yield "hostname", str, machine.hostname
    yield "cpu_model", str, machine.cpu_model
    yield "usable_cpus", int, machine.usable_cpus
    yield "gpus", str, _BETWEEN.join(machine.gpus)
    yield "server_cpus", int, len(settings.server_cpus)
    yield "client_cpus", int, len(settings.client_cpus)
    yield "model", str, settings.model
    yield "model_version", int, manifest.model_version
    yield "model_sha256", str, manifest.model_sha256
    yield "variant", str, manifest.variant.kind if manifest.variant else None
    yield "driver", str, settings.driver
    yield "engine", str, settings.engine
    yield "encoding", str, settings.encoding
    yield "request_bytes", int, manifest.wire.request_bytes
    yield "timeout_s", float, settings.timeout_s
    yield "slo_ms", float, settings.slo_ms
    yield "seed", int, settings.seed


def _trial_cells(trial: Trial, level_name: str) -> Iterator[Cell]:
    rate = trial.outcomes["ok"] / trial.window_s
    yield "trial", str, trial.id
    yield "backend", str, trial.backend
    yield "scenario", str, trial.scenario
    yield "level", float, trial.level
    yield "level_name", str, level_name
    yield "repeat", int, trial.repeat
    yield "probe", int, trial.probe
    yield "verdict", str, trial.verdict
    yield "reasons", str, _BETWEEN.join(trial.reasons)
    yield "notes", str, _BETWEEN.join(trial.notes)
    yield "window_started_unix_s", float, trial.window_started_unix_s
    yield "window_s", float, trial.window_s
    yield "warmup_s", float, trial.warmup_s
    yield "warmup_requests", int, trial.warmup_requests
    yield "warmup_settled", bool, trial.warmup_settled
    yield "rows_per_request", int, trial.rows_per_request
    yield "requests_per_s", float, rate
    yield "inferences_per_s", float, rate * trial.rows_per_request
    yield "planned_requests", int, trial.planned
    for outcome in OUTCOMES:
        yield f"{outcome}_requests", int, trial.outcomes[outcome]
    yield "late_requests", int, trial.late
    yield "mean_in_flight_requests", float, trial.mean_in_flight
    yield "lateness_p99_ms", float, trial.lateness_p99_ms
    yield "clock_error_s", float, trial.clock_error_s
    yield "ceiling_rps", float, trial.ceiling_rps
    yield "floor_ms", float, trial.floor_ms
    yield "encode_ns", float, trial.encode_ns
    yield "client_cpu_share", float, trial.client_cpu
    yield "server_cpu_share", float, trial.server_cpu
    yield "server_rss_bytes", int, trial.server_rss_bytes
    yield "server_ended", str, trial.server_ended
    yield "cut", str, trial.cut


def _percentile_cells(of: str, found: Percentiles) -> Iterator[Cell]:
    """Each with its 99% bounds; ``high`` is ``None`` where the samples give none."""
    for field in QUANTILES:
        known: Quantile | None = getattr(found, field)
        start = f"{of}_{field}"
        yield f"{start}_ms", float, known.value_ms if known else None
        yield f"{start}_low_ms", float, known.low_ms if known else None
        yield f"{start}_high_ms", float, known.high_ms if known else None
        yield f"{start}_at_least", bool, known.at_least if known else None


def _timing_cells(told: ServerTimings | None) -> Iterator[Cell]:
    """Who told them, then what they are, where a server does."""
    yield "server_timings", str, told.told_by if told else None
    if told is None:
        return
    yield "server_timings.rows", int, told.rows
    yield "server_timings.executions", int, told.executions
    for name, phase in told.phases.items():
        yield f"server_timings.{name}_requests", int, phase.count
        yield f"server_timings.{name}_ns", int, phase.ns


def _frames_cells(told: FramesRecord | None) -> Iterator[Cell]:
    """Of all streams together."""
    yield "frames.policy", str, told.policy if told else None
    yield "frames.deadline_ms", float, told.deadline_ms if told else None
    yield from _model_cells("frames", Delivered, told.together if told else None)


def _resource_cells(use: ResourceUse | None) -> Iterator[Cell]:
    """By their paths (docs/resources.md); roles and energy always, the rest as the machine has."""
    for role in (SERVER, GENERATOR):
        yield from _model_cells(f"roles.{role}", RoleUse, use.roles.get(role) if use else None)
    energy = use.energy if use else None
    yield from _model_cells("energy", Energy, energy)
    yield "energy.rails", str, _BETWEEN.join(energy.rails) if energy else None
    yield "energy.missing", str, _pairs(energy.missing) if energy else None
    if use is None:
        return
    for part in ("cores", "network", "gpus", "rails"):
        for name, found in getattr(use, part).items():
            yield from _leaves(f"{part}.{name}", found)
    yield "resources_samples", int, use.samples
    yield "sampling_cores", float, use.sampling_cores
    yield "unmeasurable", str, _pairs(use.unmeasurable)


def _model_cells(path: str, model: type[BaseModel], found: BaseModel | None) -> Iterator[Cell]:
    """Its numbers, known or not, so that every table has the same columns of them."""
    for name, field in model.model_fields.items():
        kinds = get_args(field.annotation) or (field.annotation,)
        for kind in (int, float):
            if kind in kinds:
                yield f"{path}.{name}", kind, getattr(found, name) if found else None


def _leaves(path: str, found: object) -> Iterator[Cell]:
    if isinstance(found, BaseModel):
        for name in type(found).model_fields:
            yield from _leaves(f"{path}.{name}", getattr(found, name))
    elif isinstance(found, tuple):
        yield path, str, _BETWEEN.join(map(str, found))
    elif found is not None:
        assert isinstance(found, float | int)
        yield path, type(found), found


def _pairs(texts: Mapping[str, str]) -> str:
    return _BETWEEN.join(f"{name}: {text}" for name, text in texts.items())
