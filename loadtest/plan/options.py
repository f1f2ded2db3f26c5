"""One option of a plan: what one profile answers to the question."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from loadtest.capacity.cameras import CameraReport
from loadtest.capacity.formulas import (
    allen_cunneen_wait_s,
    batch_response_bound_s,
    fit_scalability,
    linear_batch_s,
)
from loadtest.plan.demand import Rate
from loadtest.plan.fleet import Search, Sized, size
from loadtest.plan.money import cost_of, energy_of
from loadtest.plan.predict import Predictor, Window, Wire, range_of
from loadtest.plan.question import Question
from loadtest.plan.record import Crosscheck, FramesForecast, Option, Range, WireCost
from loadtest.plan.scenarios import (
    burst_of,
    curve_of,
    failure_of,
    fleet_points,
    growth_until_missed,
)
from loadtest.plan.server import Server, Usable, usable_of
from loadtest.profiles.record import Profile
from loadtest.rounding import four_digits
from serving.errors import UsageError

_NS = 1e9


@dataclass(frozen=True)
class Payload:
    """What one request is and weighs."""

    kind: str
    request_bytes: int


def option_of(
    path: Path,
    profile: Profile,
    question: Question,
    payloads: tuple[Payload, ...] = (),
    progress: Callable[[str], None] = lambda _: None,
) -> Option:
    """The answer, or why there is none.

    Raises:
        InfersweepError: the profile's samples do not reach as far as its scheduler.
    """
    server = Server.of(profile)
    usable = usable_of(
        profile.sweep, question.objective.name, question.limit_ms, question.most_lost
    )
    wire = _wire(question, profile)
    costs = tuple(_wire_costs(question, payloads))
    bare = Option(
        backend=profile.backend,
        machine=f"{profile.machine.hostname}, {profile.machine.cpu_model}, "
        f"{profile.server_cpus} CPU for the server",
        profile=str(path),
        replicas=None,
        why="",
        usable_rps=usable.usable_rps,
        peak_rps=usable.peak_rps,
        wire=costs,
        warnings=tuple(_warnings(server, question)),
    )
    why_not = _impossible(question, server, usable, wire)
    if why_not:
        return bare.model_copy(update={"why": why_not})
    predictor = _predictor(server, question, wire, progress)
    search = Search(predictor, question)
    assert usable.usable_rps is not None
    sized = size(search, usable.usable_rps)
    if sized is None:
        most = max(search.tried, default=question.most_replicas)
        return bare.model_copy(
            update={"why": f"no fleet of up to {most} replicas keeps {question.objective.text}"}
        )
    return _answered(bare, server, search, sized, usable.usable_rps)


def _predictor(
    server: Server, question: Question, wire: Wire | None, progress: Callable[[str], None]
) -> Predictor:
    deadline_ns = question.objective.limit_ns if question.demand.frames is not None else 0
    return Predictor(
        server,
        question.demand,
        question.objective.quantile,
        question.seed,
        question.balance,
        wire,
        deadline_ns,
        progress=progress,
    )


def _wire(question: Question, profile: Profile) -> Wire | None:
    if question.link is None:
        return None
    return Wire(question.link, profile.request_bytes, profile.reply_bytes)


def _impossible(question: Question, server: Server, usable: Usable, wire: Wire | None) -> str:
    """Why no number of replicas helps; empty where one may."""
    if wire is not None:
        share = _uplink_share(question, wire.request_bytes)
        if share >= 1:
            return (
                f"one camera's frames of {wire.request_bytes / 1e3:,.0f} kB take {share:.0%} of "
                f"the uplink of {wire.profile.name}: no number of replicas helps; send "
                "less (JPEG, a smaller frame) or slower"
            )
    if usable.smallest_ms is None:
        return (
            f"no point of the profile is VALID, has {question.objective.name} and loses at most "
            f"{question.most_lost:.2%}: measure longer windows"
        )
    quickest_ms = server.quickest_ms(question.objective.quantile)
    if wire is not None:
        quickest_ms += 1e3 * wire.request_bytes * 8 / wire.profile.uplink_bps
        quickest_ms += wire.profile.round_trip_ms
    if quickest_ms > question.limit_ms:
        return (
            f"{question.objective.text} is below what a lone request takes: the smallest reachable "
            f"{question.objective.name} is about {quickest_ms:.3g} ms"
        )
    if usable.usable_rps is None:
        return (
            f"no measured point meets {question.objective.text}: the smallest "
            f"{question.objective.name} is {usable.smallest_ms:.3g} ms"
        )
    return ""


def _uplink_share(question: Question, request_bytes: int) -> float:
    """Of the uplink of one camera, or of one client that sends one request after the other."""
    if question.link is None:
        return 0.0
    cameras = getattr(question.demand, "cameras", None)
    each_rps = cameras.fps if cameras else 0.0
    return request_bytes * 8 * each_rps / question.link.uplink_bps


def _wire_costs(question: Question, payloads: tuple[Payload, ...]) -> Iterator[WireCost]:
    if question.link is None:
        return
    for payload in payloads:
        yield WireCost(
            payload=payload.kind,
            request_bytes=payload.request_bytes,
            uplink_ms=1e3 * payload.request_bytes * 8 / question.link.uplink_bps,
            uplink_share=_uplink_share(question, payload.request_bytes),
        )


def _warnings(server: Server, question: Question) -> Iterator[str]:
    profile = server.profile
    if profile.server_cpus < _threads(server):
        yield (
            f"the server was profiled with more inference threads than its {profile.server_cpus} "
            "CPUs: service times are those of a full server"
        )
    frames = question.demand.frames
    if frames is not None and frames.policy != "fifo" and not frames.in_order:
        yield f"cameras send each frame at once, so the policy {frames.policy} drops none"
    if question.balance == "round-robin" and frames is not None:
        yield "with round robin the frames of one camera go to different replicas in turn"


def _threads(server: Server) -> int:
    text = server.profile.setting.get("intra_op_threads", "1")
    return server.scheduler.instances * (int(text) if text.isdecimal() else 1)


def _answered(
    bare: Option, server: Server, search: Search, sized: Sized, usable_rps: float
) -> Option:
    question, predictor, profile = search.question, search.predictor, server.profile
    replicas, rate_rps = sized.replicas, question.demand.rate_rps
    seen = search.at(replicas)
    utilisation = rate_rps / (replicas * server.saturated_rps)
    energy, missing = energy_of(profile, rate_rps / replicas, utilisation, question)
    memory = [repeat.rss_bytes for repeat in profile.repeats if repeat.rss_bytes]
    failure = failure_of(search, server, replicas)
    told = {
        "replicas": replicas,
        "why": _why(sized, question, usable_rps),
        "utilisation": utilisation,
        "response_ms": seen.response_ms,
        "frames": _frames(seen.cameras),
        "memory_bytes": max(memory, default=None),
        "energy": energy,
        "energy_missing": missing,
        "cost_per_million": cost_of(question, replicas),
        "currency": question.currency,
        "failure": failure,
        "burst": burst_of(predictor, question, replicas),
        "breaks_first": _breaks_first(predictor, question, replicas, utilisation),
        "curve": tuple(curve_of(predictor, question)),
        "fleet": tuple(fleet_points(question, sized.by_objective, usable_rps)),
        "crosschecks": tuple(_crosschecks(server, predictor, question, replicas)),
        "scalability": _scalability(profile),
    }
    if not seen.holds:
        told["warnings"] = (*bare.warnings, "the planned fleet itself misses the objective")
    return bare.model_copy(update=told)


def _why(sized: Sized, question: Question, usable_rps: float) -> str:
    rate_rps = question.demand.rate_rps
    used = f"at {1 - question.headroom:.0%} use"
    of_each = (
        f"{four_digits(rate_rps)}/s over {four_digits(usable_rps)}/s usable of each {used}: "
        f"{sized.by_headroom}"
    )
    parts = [of_each, f"the simulated objective: {sized.by_objective}"]
    if question.survive:
        parts.append(f"and {question.survive} more to survive {question.survive} failed")
    return "; ".join(parts)


def _breaks_first(
    predictor: Predictor, question: Question, replicas: int, utilisation: float
) -> str | None:
    """What gives way when the demand grows, the earliest first."""
    ends: list[tuple[float, str]] = [(1 / utilisation, "the replicas are saturated")]
    grown = growth_until_missed(predictor, question, replicas)
    if grown is not None:
        ends.append((grown, f"{question.objective.name} or the share of lost requests"))
    factor, what = min(ends)
    return f"{what}, at {factor:.3g} times the demand"


def _frames(reports: Sequence[CameraReport]) -> FramesForecast | None:
    together = [one.together for one in reports]
    p99 = [one.age_p99_ns for one in together if one.age_p99_ns is not None]
    p50 = [one.age_p50_ns for one in together if one.age_p50_ns is not None]
    missed = [one.missed / one.frames for one in together if one.missed is not None and one.frames]
    each = [np.mean([stream.delivered_fps for stream in one.streams]) for one in reports]

    def in_ms(values: list[int]) -> Range:
        return range_of([value / 1e6 for value in values])

    if not p50:
        return None
    return FramesForecast(
        delivered_fps=range_of([float(value) for value in each]),
        dropped_share=range_of([one.dropped / one.frames for one in together if one.frames]),
        missed_share=range_of(missed) if missed else None,
        age_p50_ms=in_ms(p50),
        age_p99_ms=in_ms(p99) if p99 else None,
        longest_gap_ms=in_ms([one.longest_gap_ns for one in together]),
    )


def _crosschecks(
    server: Server, predictor: Predictor, question: Question, replicas: int
) -> Iterator[Crosscheck]:
    """Closed forms at the planned load; they know no cameras, no delay and no policy."""
    rate_rps = question.demand.rate_rps
    start = server.starts[0]
    scheduler = server.scheduler
    # Poisson arrivals without a link, which is what the forms are for.
    plain = replace(predictor, demand=Rate(rate_rps), wire=None, _made={}, _shards={})
    own = _mean_ms(plain.predict(replicas))
    service = start.service
    try:
        if scheduler.max_batch_size == 1:
            yield Crosscheck(
                name="mean response, Allen-Cunneen (Allen 1990, 5.6), one queue for all replicas",
                value_ms=1e3
                * (
                    allen_cunneen_wait_s(
                        rate_rps,
                        service.mean_ns(1) / _NS,
                        replicas * scheduler.instances,
                        arrivals_squared_variation=1.0,
                        service_squared_variation=service.squared_variation(1),
                    )
                    + (service.mean_ns(1) + start.delay_ns) / _NS
                ),
                simulated_ms=own,
                note="exact for M/M/c; both of Poisson arrivals without a link",
            )
        else:
            per_request_s, per_batch_s = linear_batch_s(service)
            bound = batch_response_bound_s(
                rate_rps / replicas, per_request_s, max(per_batch_s, 0.0)
            )
            yield Crosscheck(
                name="mean response, batch-service bound (Inoue 2021), of one replica",
                value_ms=1e3 * bound + start.delay_ns / 1e6,
                simulated_ms=own,
                note="an upper bound without a limit on the batch; both of Poisson arrivals",
            )
    except UsageError:
        return


def _mean_ms(windows: Sequence[Window]) -> float:
    return float(np.mean(np.concatenate([window.response_ns for window in windows]))) / 1e6


def _scalability(profile: Profile) -> str | None:
    """What the law of Gunther (2007) makes of the sweep; ``None`` where it has too few points."""
    points = {float(p.users): p.requests_per_s for p in profile.sweep if p.verdict == "VALID"}
    try:
        law = fit_scalability(points)
    except UsageError:
        return None
    peak = "none within it" if law.peak is None else f"at {law.peak:.3g} users"
    return (
        f"Universal Scalability Law over {min(points):g} to {max(points):g} users: contention "
        f"{law.contention:.3g}, coherency {law.coherency:.3g}, peak {peak}, "
        f"fitted within {law.error:.1%}"
    )
