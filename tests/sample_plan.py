"""A made-up plan: 24 cameras over LTE, two options with a number, one without."""

from __future__ import annotations

import math
from typing import Any

from loadtest.links.profile import ASSUMPTION, NAMED
from loadtest.plan.record import (
    Asked,
    BurstForecast,
    Crosscheck,
    CurvePoint,
    EnergyForecast,
    FailureForecast,
    FleetPoint,
    FramesForecast,
    Option,
    Plan,
    Range,
    Verification,
    WireCost,
)
from loadtest.plan.scaling import scaling_of

CAMERAS, FPS = 24, 10.0
LINK = NAMED["lte"]
LIMIT_MS = 150.0
PROFILES = {
    "onnxruntime": "profiles/orin-onnxruntime.json",
    "triton": "profiles/epyc-triton.json",
    "fastapi": "profiles/epyc-fastapi.json",
}
HEADROOM, SURVIVE = 0.2, 1
_LINK_MS = 2 * LINK.one_way_delay_ms + 33.3


def asked(**changes: Any) -> Asked:
    given = {
        "model": "image_classifier",
        "demand": "24 cameras at 10 fps, random phase, latest-only",
        "rate_rps": CAMERAS * FPS,
        "cameras": CAMERAS,
        "fps": FPS,
        "objective": "p99<=150ms",
        "link": LINK.name,
        "link_sources": {
            f"one-way delay {LINK.one_way_delay_ms:g} ms": LINK.source_of("one_way_delay_ms"),
            f"jitter {LINK.jitter_ms:g} ms": LINK.source_of("jitter_ms"),
            f"loss {LINK.loss_share:.1%}": LINK.source_of("loss_share"),
            f"uplink {LINK.uplink_bps / 1e6:g} Mbps": LINK.source_of("uplink_bps"),
            f"downlink {LINK.downlink_bps / 1e6:g} Mbps": LINK.source_of("downlink_bps"),
            "outages none": ASSUMPTION,
        },
        "most_lost": 0.001,
        "survive": SURVIVE,
        "headroom": HEADROOM,
        "balance": "least outstanding",
        "window_s": 60.0,
        "seed": 7,
    }
    return Asked.model_validate(given | changes)


def around(value: float, spread: float = 0.08) -> Range:
    """Slow windows lie farther away than quick ones."""
    return Range(value=value, low=value * (1 - spread), high=value * (1 + 2 * spread))


def response(service_ms: float, utilisation: float) -> Range:
    """Of one replica: longer, and less certain, the busier it is."""
    wait_ms = 2.2 * service_ms * utilisation / (1 - utilisation)
    return around(1.15 * service_ms + wait_ms, 0.02 + 0.12 * utilisation**2)


def curve(service_ms: float, saturated_rps: float) -> tuple[CurvePoint, ...]:
    loads = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.85, 0.9, 0.95)
    return tuple(
        CurvePoint(
            utilisation=load, rate_rps=load * saturated_rps, response_ms=response(service_ms, load)
        )
        for load in loads
    )


def fleet(usable_rps: float) -> tuple[FleetPoint, ...]:
    """What each number of replicas carries, up to 480 requests/s, with one to spare."""
    each = usable_rps * (1 - HEADROOM)
    return tuple(
        FleetPoint(rate_rps=number * each, replicas=number + SURVIVE)
        for number in range(1, math.ceil(480 / each) + 1)
    )


def wire() -> tuple[WireCost, ...]:
    sizes = {
        "float32 tensor": 602_265,
        "uint8 tensor": 150_681,
        "JPEG, quality 90": 50_212,
        "JPEG, quality 50": 18_540,
    }
    return tuple(
        WireCost(
            payload=payload,
            request_bytes=size,
            uplink_ms=8e3 * size / LINK.uplink_bps,
            uplink_share=8 * size * FPS / LINK.uplink_bps,
        )
        for payload, size in sizes.items()
    )


def onnxruntime(**changes: Any) -> Option:
    planned = response(6.2, 0.56)
    with_link = around(planned.value + _LINK_MS)
    given = {
        "backend": "onnxruntime",
        "machine": "Jetson Orin Nano, 6 CPUs, 8.0 GB",
        "profile": PROFILES["onnxruntime"],
        "replicas": 4,
        "why": "240 requests/s over 80% of 118.0 each are 3 replicas, and 1 that may fail",
        "usable_rps": 118.0,
        "peak_rps": 142.6,
        "utilisation": 0.56,
        "response_ms": with_link,
        "frames": FramesForecast(
            delivered_fps=Range(value=9.93, low=9.88, high=9.97),
            dropped_share=Range(value=0.006, low=0.003, high=0.011),
            missed_share=Range(value=0.009, low=0.004, high=0.016),
            age_p50_ms=around(112.4),
            age_p99_ms=with_link,
            longest_gap_ms=around(302.0, 0.2),
        ),
        "memory_bytes": 212_000_000,
        "energy": EnergyForecast(
            watts=9.4,
            gross_j_per_inference=0.157,
            net_j_per_inference=0.072,
            inferences_per_wh=22_930,
            flight_time_lost_s=64.0,
        ),
        "cost_per_million": 0.84,
        "currency": "EUR",
        "breaks_first": "the objective at 396 requests/s, before memory",
        "failure": FailureForecast(
            failed=1,
            lost_share=0.25,
            detect_s=2.0,
            response_ms=around(with_link.value + 14.0),
            utilisation=0.75,
            holds=True,
            restart_s=5.8,
        ),
        "burst": BurstForecast(
            factor=2.0, length_s=5.0, response_ms=around(412.0, 0.15), recovery_s=7.5, holds=False
        ),
        "wire": wire(),
        "curve": curve(6.2, 142.6),
        "fleet": fleet(118.0),
        "crosschecks": (
            Crosscheck(
                name="mean response, batch-service bound (Inoue 2021), of one replica",
                value_ms=9.82,
                simulated_ms=8.67,
                note="an upper bound without a limit on the batch; both of Poisson arrivals",
            ),
        ),
        "scalability": "Universal Scalability Law over 1 to 32 users: contention 0.031, "
        "coherency 0.0004, peak at 49.2 users, fitted within 2.3%",
        "warnings": ("the balancer's 2 s until a failure is known are an assumption",),
    }
    return Option.model_validate(given | changes)


def triton(**changes: Any) -> Option:
    planned = around(response(9.1, 0.61).value + _LINK_MS)
    given = {
        "backend": "triton",
        "machine": "AMD EPYC 7B13, 4 CPUs, 16.8 GB",
        "profile": PROFILES["triton"],
        "replicas": 5,
        "why": "240 requests/s over 80% of 81.5 each are 4 replicas, and 1 that may fail",
        "usable_rps": 81.5,
        "peak_rps": 98.3,
        "utilisation": 0.61,
        "response_ms": planned,
        "memory_bytes": 643_000_000,
        "energy_missing": "no power rail can be read on this machine: /sys/class/powercap is empty",
        "breaks_first": "CPU, at 326 requests/s",
        "failure": FailureForecast(
            failed=1,
            lost_share=0.2,
            detect_s=2.0,
            response_ms=None,
            utilisation=1.02,
            holds=False,
            restart_s=None,
        ),
        "burst": BurstForecast(
            factor=2.0, length_s=5.0, response_ms=around(690.0, 0.2), recovery_s=None, holds=False
        ),
        "wire": wire(),
        "curve": curve(9.1, 98.3),
        "fleet": fleet(81.5),
        "crosschecks": (
            Crosscheck(
                name="mean response, Allen-Cunneen (Allen 1990, 5.6), one queue for all replicas",
                value_ms=10.9,
                simulated_ms=11.2,
                note="exact for M/M/c; both of Poisson arrivals without a link",
            ),
        ),
    }
    return Option.model_validate(given | changes)


def fastapi(**changes: Any) -> Option:
    given = {
        "backend": "fastapi",
        "machine": "AMD EPYC 7B13, 4 CPUs, 16.8 GB",
        "profile": PROFILES["fastapi"],
        "replicas": None,
        "why": "one request at a time already takes 171 ms at p99 with the link, above 150 ms",
        "usable_rps": None,
        "peak_rps": 41.7,
        "memory_bytes": 388_000_000,
        "energy_missing": "no power rail can be read on this machine: /sys/class/powercap is empty",
    }
    return Option.model_validate(given | changes)


def verification(at: float, error: float, **changes: Any) -> Verification:
    """Of ``onnxruntime`` at this utilisation; the measurement follows from the error."""
    predicted = response(6.2, at)
    measured_ms = predicted.value / (1 + error)
    given = {
        "backend": "onnxruntime",
        "profile": PROFILES["onnxruntime"],
        "load": f"Poisson, {at:.0%} of capacity",
        "rate_rps": at * 142.6,
        "utilisation": at,
        "percentile": "p99",
        "predicted_ms": predicted,
        "measured_ms": measured_ms,
        "measured_low_ms": 0.93 * measured_ms,
        "measured_high_ms": 1.12 * measured_ms,
        "error": error,
        "drift": -0.012,
        "verdict": "within 15%" if abs(error) <= 0.15 else "missed",
    }
    return Verification.model_validate(given | changes)


def verifications() -> tuple[Verification, ...]:
    return (
        verification(0.35, 0.041),
        verification(0.65, -0.083),
        verification(0.88, -0.231, measured_high_ms=None),
        verification(
            0.65,
            11.0 / 11.2 - 1,
            percentile="p50",
            predicted_ms=around(11.0),
            measured_ms=11.2,
            measured_low_ms=10.9,
            measured_high_ms=11.6,
        ),
        verification(
            0.6,
            0.31,
            backend="triton",
            profile=PROFILES["triton"],
            drift=None,
            verdict="INVALID",
            reasons=("the generator used 96% of its CPUs, so it was itself the limit",),
        ),
    )


def plan(**changes: Any) -> Plan:
    given = {
        "created": "2026-05-01T12:00:00+00:00",
        "command": f"infersweep plan {' '.join(PROFILES.values())} "
        "--cameras 24 --fps 10 --link lte -o 'p99<=150ms' --survive 1",
        "infersweep_version": "0.1.0",
        "asked": asked(),
        "options": (onnxruntime(), triton(), fastapi()),
        "chosen": PROFILES["onnxruntime"],
        "sentence": "4 replicas of onnxruntime, of which 1 may fail, serve 24 cameras at 10 fps "
        "over lte within p99<=150ms: p99 frame age 128 ms (118 to 148 in 18 of 20 windows).",
        "verifications": verifications(),
        "scaling": {
            "onnxruntime on 6 CPU of orin": scaling_of({1: 38.0, 2: 74.5, 4: 142.6, 6: 139.8})
        },
    }
    return Plan.model_validate(given | changes)
