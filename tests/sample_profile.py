"""A made-up profile of one server: what it takes for a batch follows from one function."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from loadtest.profiles.record import Energy, Profile, Repeat, SweepPoint
from loadtest.profiles.service import Loop
from loadtest.results import Machine, Percentiles, Quantile

MS = 1_000_000
"""Nanoseconds."""
SHA256 = "ab" * 32


def exponential_ns(mean_ns: float, count: int = 4000) -> tuple[int, ...]:
    """Quantiles of an exponential distribution, so that its mean is within 0.1% without chance."""
    at = (np.arange(count) + 0.5) / count
    return tuple(np.rint(-mean_ns * np.log1p(-at)).astype(int).tolist())


def constant_ns(value_ns: float) -> tuple[int, ...]:
    return (round(value_ns),) * 20


def configuration(
    *,
    largest: int = 1,
    instances: int = 1,
    delay_us: int = 0,
    preferred: Sequence[int] = (),
    queue: str = "",
    batching: bool | None = None,
) -> str:
    """``config.pbtxt`` with these rules; ``queue`` is the text of its default policy."""
    batching = largest > 1 if batching is None else batching
    rules = f"max_queue_delay_microseconds: {delay_us} preferred_batch_size: {list(preferred)}"
    policy = f" default_queue_policy {{ {queue} }}" if queue else ""
    joined = f"dynamic_batching {{ {rules}{policy} }}" if batching else ""
    return (
        f'name: "made_up" backend: "onnxruntime" max_batch_size: {largest} '
        f"instance_group [ {{ count: {instances} kind: KIND_CPU }} ] {joined}"
    )


def point(users: int, rps: float, ms: float | None, **changes: Any) -> SweepPoint:
    """A point of a sweep; all its percentiles have one value."""
    found = None if ms is None else Quantile(value_ms=ms, low_ms=0.9 * ms, high_ms=1.1 * ms)
    every = dict.fromkeys(Percentiles.model_fields, found)
    given = {
        "users": users,
        "requests_per_s": rps,
        "response_time_ms": Percentiles.model_validate(every),
        "failed_share": 0.0,
        "verdict": "VALID",
    }
    return SweepPoint.model_validate(given | changes)


def repeat(service_ns: Mapping[int, Sequence[int]], *, delay_ns: int = 0, **changes: Any) -> Repeat:
    """One start; a lone request takes a service of one row and ``delay_ns``."""
    given = {
        "service_ns": service_ns,
        "alone_ns": tuple(time + delay_ns for time in service_ns[min(service_ns)]),
        "start_s": 2.5,
        "rss_bytes": 200_000_000,
    }
    return Repeat.model_validate(given | changes)


def profile(
    service_ns: Mapping[int, Sequence[int]] | None = None,
    *,
    delay_ns: int = 0,
    largest: int | None = None,
    instances: int = 1,
    **changes: Any,
) -> Profile:
    """Of a server whose batches take these times; 10 ms for each request unless given.

    Its sweep is a closed loop of exact arithmetic: one user alone, then a full server.
    """
    times = service_ns or {1: constant_ns(10 * MS)}
    most = largest or max(times)
    alone_ms = (np.mean(times[1]) + delay_ns) / MS
    full_rps = instances * most / np.mean(times[max(times)]) * 1e9
    given = {
        "created": "2026-05-01T12:00:00+00:00",
        "command": "infersweep profile --model made_up",
        "infersweep_version": "0.1.0",
        "machine": Machine(
            hostname="bench",
            os="Linux",
            python="3.11",
            cpu_model="a CPU",
            usable_cpus=4,
            cpu_source="affinity",
            memory_bytes=8_000_000_000,
        ),
        "versions": {"onnxruntime": "1.31"},
        "model": "made_up",
        "model_version": 1,
        "model_sha256": SHA256,
        "backend": "onnxruntime",
        "facts": {},
        "setting": {},
        "servers": 1,
        "server_cpus": 1,
        "configuration": configuration(largest=most, instances=instances),
        "request_bytes": 50_000,
        "reply_bytes": 1_000,
        "window_s": 6.0,
        "repeats": (repeat(times, delay_ns=delay_ns),),
        "sweep": (
            point(1, 1e3 / alone_ms, alone_ms),
            point(2 * most * instances, full_rps, 2 * most * instances / full_rps * 1e3),
        ),
        "verdict": "VALID",
    }
    return Profile.model_validate(given | changes)


def power(idle_w: float | None = 4.0, active_w: float = 10.0) -> Energy:
    return Energy(idle_w=idle_w, active_w=active_w, source="a made-up rail")


Floats = npt.NDArray[np.float64]
Takes = Callable[[int, np.random.Generator], float]


def closed_loop(
    users: int,
    takes: Takes,
    *,
    largest: int = 1,
    instances: int = 1,
    batches: int = 4000,
    replies_ns: float = 0.0,
    seed: int = 1,
) -> tuple[Loop, dict[int, Floats]]:
    """A server in virtual time that takes whatever waits, and what its batches really took.

    Each user sends the next request when it has its reply, in no time, but after the instance has
    taken its next batch. The replies of a batch leave within ``replies_ns``, the last at its end.

    Returns what the users saw, and the true times in ns by batch size.
    """
    rng = np.random.default_rng(seed)
    waiting = [0.0] * users
    running: list[tuple[float, list[float]]] = []
    seen: list[tuple[float, float]] = []
    true: dict[int, list[float]] = {}

    def start(size: int, now_ns: float) -> None:
        took_ns = takes(size, rng)
        true.setdefault(size, []).append(took_ns)
        running.append((now_ns + took_ns, waiting[:size]))
        del waiting[:size]

    for _ in range(min(instances, users)):
        start(1, 0.0)
    for _ in range(batches):
        running.sort()
        now_ns, due_ns = running.pop(0)
        early_ns = replies_ns * rng.random(len(due_ns))
        done_ns = np.sort(now_ns - (early_ns - early_ns.min()))
        seen.extend(zip(due_ns, done_ns.tolist(), strict=True))
        if waiting:
            start(min(len(waiting), largest), now_ns)
            waiting.extend(done_ns.tolist())
        else:
            waiting.extend(done_ns.tolist())
            start(min(len(waiting), largest), now_ns)
    due, done = (np.rint(column).astype(np.int64) for column in np.array(seen).T)
    return Loop(users, due, done), {size: np.array(times) for size, times in true.items()}
