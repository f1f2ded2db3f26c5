"""Which windows a sweep measures, in which order, and what is kept of each."""

from __future__ import annotations

import random
from dataclasses import dataclass
from datetime import datetime

from loadtest.delivery import of_window
from loadtest.histogram import merge
from loadtest.resources.sampler import Sampler
from loadtest.results import Histograms, Settings, Trial
from loadtest.scenarios import ClosedLoop, OpenLoop, make_load
from loadtest.trial import LevelOutput
from loadtest.validity import judge


@dataclass(frozen=True)
class PlannedTrial:
    """Attributes: ``probe`` is its place in a search, 0 for the closed loops in front."""

    backend: str
    level: float
    repeat: int
    probe: int | None = None

    @property
    def id(self) -> str:
        name = "".join(c if c.isalnum() else "-" for c in self.backend)
        probe = "" if self.probe is None else f"-p{self.probe}"
        return f"{name}-l{self.level:g}-r{self.repeat}{probe}"


@dataclass(frozen=True)
class Visit:
    """One server start and the trials that run against it."""

    backend: str
    trials: tuple[PlannedTrial, ...]


def plan_visits(settings: Settings) -> list[Visit]:
    """All visits in the order they run; the same settings give the same order."""
    rng = random.Random(settings.seed)
    visits = []
    for repeat in range(1, settings.repeats + 1):
        for backend in rng.sample(settings.backends, len(settings.backends)):
            order = rng.sample(settings.levels, len(settings.levels))
            visits.append(Visit(backend, tuple(PlannedTrial(backend, n, repeat) for n in order)))
    return visits


def trial_of(
    planned: PlannedTrial,
    output: LevelOutput,
    settings: Settings,
    *,
    client_cpus: int,
    server_cpus: int,
    server_ended: str | None,
    ceiling_rps: float | None,
    floor_ms: float | None = None,
    encode_ns: float | None = None,
) -> tuple[Trial, Histograms]:
    """What is kept of one measured level, judged."""
    load = make_load(settings.scenario, planned.level, settings.parameters, settings.duration_s)
    judgement = judge(
        output,
        load,
        client_cpus=client_cpus,
        server_ended=server_ended,
        ceiling_rps=ceiling_rps,
    )
    samples = load.users if isinstance(load, ClosedLoop) and load.together else 1
    lateness = merge([output.lateness])
    streams = load.streams if isinstance(load, OpenLoop) else None
    trial = Trial(
        id=planned.id,
        backend=planned.backend,
        scenario=settings.scenario,
        level=planned.level,
        repeat=planned.repeat,
        probe=planned.probe,
        started=datetime.now().astimezone().isoformat(timespec="seconds"),
        window_started_unix_s=output.window_started_unix_s,
        window_s=output.window_s,
        warmup_s=output.warmup_s,
        warmup_requests=output.warmup_requests,
        warmup_settled=output.settled,
        planned=output.planned,
        outcomes=output.outcomes,
        completed=output.completed,
        rows_per_request=settings.batch_size * samples,
        mean_in_flight=output.mean_in_flight,
        late=judgement.late,
        lateness_p99_ms=lateness.get_value_at_percentile(99) / 1e6,
        client_cpu=output.client_cpu_s / (client_cpus * output.window_s),
        ceiling_rps=ceiling_rps,
        server_cpu=None
        if output.server_cpu_s is None
        else output.server_cpu_s / (server_cpus * output.window_s),
        server_rss_bytes=output.server_rss_bytes,
        server_ended=server_ended,
        clock_error_s=output.clock_error_s,
        cut=output.cut,
        frames=of_window(output.frames, streams, output.window_s) if streams else None,
        server_timings=output.server_timings,
        server_timings_missing=output.server_timings_missing,
        floor_ms=floor_ms,
        encode_ns=encode_ns,
        verdict=judgement.verdict,
        reasons=judgement.reasons,
        notes=judgement.notes,
    )
    return trial, Histograms(
        trial=planned.id,
        response_time=output.response_time,
        service_time=output.service_time,
        lateness=output.lateness,
        first_byte=output.first_byte,
        ages=tuple(one.ages for one in output.frames),
    )


def with_resources(trial: Trial, sampler: Sampler) -> Trial:
    """The trial with what its window used; call as soon as the window is over."""
    start = trial.window_started_unix_s
    assert start is not None
    inferences = trial.outcomes["ok"] * trial.rows_per_request
    use = sampler.use(start, start + trial.window_s, inferences=inferences)
    return trial.model_copy(update={"resources": use})
