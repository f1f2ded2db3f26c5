"""A run as a report must cope with: close rates, gaps, a failure, an exclusion, a hostile fact."""

from __future__ import annotations

from loadtest.explained import Heatmap, Spectrum, Start
from loadtest.ranking import rank_points
from loadtest.resources.record import (
    Energy,
    Gauge,
    GpuUse,
    InterfaceUse,
    RailUse,
    ResourceUse,
    RoleUse,
)
from loadtest.results import (
    BackendSummary,
    Machine,
    Manifest,
    Parity,
    Percentiles,
    Point,
    Quantile,
    Settings,
    Summary,
    Wire,
)

CONCURRENCY = (1, 2, 4, 8)
HOSTILE = "<script>alert('facts')</script>"
EXCLUDED = "its answers differ from the reference: row 3 by 0.21 & more"
UNMEASURABLE = "no <power> sensor & no counter"
THROTTLED = "thermal slowdown"
KEPT = "8.0 MB stay in memory, since <b>sshd</b> has them mapped"
CONFIGURATION = 'name: "image_classifier"\n# </code><script>alert(1)</script>\n'
REASONS = ("client-bound: the generator used 97% of its CPU (2 of 3 repeats)",)

_RATES = {
    "triton": (148.0, 171.2, 176.9, 177.5),
    "onnxruntime": (161.3, 186.0, 189.8, 191.1),
    "fastapi": (121.7, 149.4, 151.2, 143.9),
}
_FACTS = {
    "triton": {"launcher": "wheel (nvidia-pytriton)", "server version": "2.51.0"},
    "onnxruntime": {"server": "infersweep 0.1.0 on uvloop 0.23.0", "engine": "ONNX Runtime 1.24.0"},
    "fastapi": {"server": "gunicorn 27.0, uvicorn 0.40, FastAPI 0.115", "note": HOSTILE},
    "fastapi:torch": {},
}


def summary(*, complete: bool = True, winner: bool = True) -> Summary:
    """Four backends: one point INVALID, one without a VALID repeat, one backend excluded."""
    backends = tuple(_backend(label, spread=0.01 if winner else 0.2) for label in _FACTS)
    return Summary(
        manifest=_manifest(),
        complete=complete,
        planned_trials=48,
        finished_trials=36 if complete else 20,
        backends=backends,
        ranking=rank_points(backends, {}),
    )


def _backend(label: str, *, spread: float) -> BackendSummary:
    excluded = label not in _RATES
    return BackendSummary(
        label=label,
        facts=_FACTS[label],
        warnings=("shared memory is small: 64 MB free",) if label == "triton" else (),
        parity=Parity(
            passed=not excluded,
            rows=16,
            largest_difference=0.21 if excluded else 2.4e-7,
            tolerance="relative 0.0001, absolute 1e-05",
            detail="row 3 differs" if excluded else "",
        ),
        start_s=4.21,
        excluded=EXCLUDED if excluded else None,
        points=() if excluded else tuple(_point(label, n, spread) for n in CONCURRENCY),
        starts=_starts(label) if label == "onnxruntime" else (),
        spectrum=None if excluded else _spectrum(),
        heatmap=None if excluded else _heatmap(),
        configuration=None if excluded else CONFIGURATION,
    )


def _starts(label: str) -> tuple[Start, ...]:
    """One as found, one with nothing in memory, two with all of it."""
    states = ("as found", "not cached", "cached", "cached")
    return tuple(
        Start(
            backend=label,
            repeat=number,
            state=state,
            ready_s=ready_s,
            first_answer_s=ready_s + 0.25,
            dropped_bytes=None if state == "as found" else 90_000_000,
            kept_bytes=None if state == "as found" else 0,
            notes=(KEPT,) if state == "not cached" else (),
        )
        for number, (state, ready_s) in enumerate(zip(states, (2.0, 4.0, 1.0, 2.0), strict=True), 1)
    )


def _spectrum() -> Spectrum:
    """Bounded up to 99.9%; from 99% on a time limit was reached."""
    return Spectrum(
        level=4,
        samples=5_000,
        quantiles=(0.5, 0.9, 0.95, 0.99, 0.999),
        values_ms=(8.0, 12.0, 14.0, 20.0, 31.0),
        at_least_from=0.99,
    )


def _heatmap() -> Heatmap:
    """Two seconds: all in the lower row, then one of four in the upper."""
    return Heatmap(
        trial="r1", level=4, column_s=1.0, edges_ms=(5.0, 10.0, 40.0), counts=((4, 0), (3, 1))
    )


def _point(label: str, concurrency: int, spread: float) -> Point:
    """FastAPI's last point is INVALID; so is Triton's, whose percentiles have too few samples."""
    rate = _RATES[label][CONCURRENCY.index(concurrency)]
    middle = concurrency / rate * 1e3
    empty = label == "triton" and concurrency == 8
    invalid = empty or (label == "fastapi" and concurrency == 8)
    few = label == "fastapi" and concurrency == 1
    times = Percentiles(
        p50=_known(middle),
        p90=_known(middle * 1.12),
        p95=_known(middle * 1.2),
        p99=None if few else _known(middle * 1.55),
        p99_9=_known(middle * 2.1) if label == "onnxruntime" else None,
    )
    nothing = Percentiles()
    return Point(
        scenario="closed",
        level=concurrency,
        repeats=3,
        samples=0 if empty else 430 if few else round(rate * 12),
        planned_per_s=rate,
        warmup_s=0.7,
        requests_per_s=rate,
        inferences_per_s=rate,
        inferences_per_s_range=(rate * (1 - spread), rate * (1 + spread)),
        inferences_per_s_repeats=(rate * (1 - spread), rate, rate * (1 + spread)),
        response_time_ms=nothing if empty else times,
        service_time_ms=nothing if empty else times,
        largest_response_ms=None if empty else middle * 2.3,
        outcomes={"ok": round(rate * 12), "wrong_answer": 9 if empty else 0},
        client_cpu=None if empty else 0.08 if not invalid else 0.97,
        server_cpu=None if empty else 0.93,
        server_rss_bytes=None if empty else 412_000_000,
        resources=_use(label, rate),
        verdict="INVALID" if invalid else "VALID",
        reasons=("9 wrong answers (3 of 3 repeats)",) if empty else REASONS if invalid else (),
        notes=("1 request was slow to connect",) if few else (),
    )


def _use(label: str, rate: float) -> ResourceUse | None:
    """Triton's with power and a GPU, ONNX Runtime's without; of FastAPI nothing was sampled."""
    if label == "fastapi":
        return None
    role = RoleUse(
        cpu_cores=0.97,
        rss_peak_bytes=412_000_000,
        pss_peak_bytes=301_000_000,
        voluntary_switches_per_s=21_000.0,
        involuntary_switches_per_s=310.0,
        processes_peak=2,
        threads_peak=19,
    )
    own: dict[str, object] = {"unmeasurable": {"rails": UNMEASURABLE}}
    if label == "triton":
        gauge = Gauge(mean=0.4, lowest=0.1, highest=0.9)
        gpu = GpuUse(
            utilisation=gauge,
            engine_active=None,
            sm_active=None,
            memory_bytes=Gauge(mean=1e9, lowest=9e8, highest=2e9),
            sm_clock_hz=Gauge(mean=1.5e9, lowest=1.2e9, highest=1.8e9),
            memory_clock_hz=None,
            temperature_celsius=None,
            throttled=(THROTTLED,),
        )
        own = {
            "gpus": {"gpu0": gpu},
            "rails": {"package-0": RailUse(watts=18.0, joules=72.0)},
            "energy": Energy(
                rails=("package-0",),
                missing={},
                joules=72.0,
                joules_per_inference=18.0 / rate,
                idle_watts=6.0,
                net_joules_per_inference=12.0 / rate,
            ),
        }
    return ResourceUse(
        window_s=4.0,
        samples=4,
        roles={"server": role, "generator": role},
        network={"lo": InterfaceUse(receive_bytes_per_s=9e7, transmit_bytes_per_s=9e7)},
        **own,
    )


def _known(value_ms: float) -> Quantile:
    return Quantile(value_ms=value_ms, low_ms=value_ms * 0.98, high_ms=value_ms * 1.03)


def _manifest() -> Manifest:
    return Manifest(
        created="2026-05-01T12:00:00+02:00",
        command="infersweep compare --model image_classifier --seed 1",
        infersweep_version="0.1.0",
        commit="0123456789ab",
        machine=Machine(
            hostname="bench-1",
            os="Ubuntu 24.04, Linux 6.8",
            python="3.12.4",
            cpu_model="Example CPU 3 GHz",
            usable_cpus=4,
            cpu_source="affinity",
            memory_bytes=16_000_000_000,
        ),
        versions={"onnxruntime": "1.24.0", "numpy": "2.3.1", "locust": "2.40.0"},
        settings=Settings(
            model="image_classifier",
            backends=tuple(_FACTS),
            levels=CONCURRENCY,
            duration_s=4.0,
            repeats=3,
            timeout_s=10.0,
            seed=1,
            server_cpus=(0, 1, 2),
            client_cpus=(3,),
        ),
        model_version=1,
        model_sha256="5f" * 32,
        wire=Wire(request_bytes=602_248),
    )


def with_points(summary: Summary, **changes: object) -> Summary:
    """Every point of every backend, changed."""
    return summary.model_copy(
        update={
            "backends": tuple(
                backend.model_copy(
                    update={"points": tuple(p.model_copy(update=changes) for p in backend.points)}
                )
                for backend in summary.backends
            )
        }
    )
