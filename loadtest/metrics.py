"""Metrics of the load generator and of the resources beside a run, and the table of all.

They are published by a process beside the generator (``loadtest.observing.exporter``); servers
publish their own (``serving.metrics.table``).
"""

from __future__ import annotations

from serving.metrics import SERVER_METRICS, Metric

RUN = ("run",)
LOAD = ("run", "backend", "model", "scenario")
ROLE = ("run", "backend", "role")
_GENERATOR, _RESOURCES = ("generator",), ("resources",)

REQUESTS = Metric(
    "infersweep_client_requests",
    "counter",
    "Requests that were due in a measured window, by how they ended",
    "requests",
    (*LOAD, "outcome"),
    _GENERATOR,
)
DUE = Metric(
    "infersweep_client_due",
    "counter",
    "Requests that have become due in a measured window: the offered load",
    "requests",
    LOAD,
    _GENERATOR,
)
WITHIN_SLO = Metric(
    "infersweep_client_within_slo",
    "counter",
    "Right answers within the objective; absent without one",
    "requests",
    LOAD,
    _GENERATOR,
)
SLO = Metric(
    "infersweep_client_slo_seconds",
    "gauge",
    "The response time objective; absent without one",
    "seconds",
    LOAD,
    _GENERATOR,
)
RESPONSE = Metric(
    "infersweep_client_response_seconds",
    "histogram",
    "Response time, from when a request was due",
    "seconds",
    (*LOAD, "outcome"),
    _GENERATOR,
)
SERVICE = Metric(
    "infersweep_client_service_seconds",
    "histogram",
    "Service time, from when a request was sent",
    "seconds",
    (*LOAD, "outcome"),
    _GENERATOR,
)
LATENESS = Metric(
    "infersweep_client_lateness_seconds",
    "histogram",
    "How late requests left the generator",
    "seconds",
    LOAD,
    _GENERATOR,
)
LEVEL = Metric(
    "infersweep_client_level",
    "gauge",
    "The step of the sweep: users or rate of the level that runs",
    "level",
    LOAD,
    _GENERATOR,
)
PHASE = Metric(
    "infersweep_client_phase",
    "gauge",
    "0 idle, 1 warming up, 2 inside a measured window",
    "phase",
    LOAD,
    _GENERATOR,
)
CEILING = Metric(
    "infersweep_client_ceiling_rps",
    "gauge",
    "What this generator reaches on the null server; absent where unknown",
    "requests/s",
    LOAD,
    _GENERATOR,
)
TRIALS = Metric(
    "infersweep_client_trials",
    "counter",
    "Finished trials by verdict",
    "trials",
    (*LOAD, "verdict"),
    _GENERATOR,
)

PROCESS_CPU = Metric(
    "infersweep_process_cpu_seconds",
    "counter",
    "CPU time of a role's processes",
    "seconds",
    ROLE,
    _RESOURCES,
)
PROCESS_RSS = Metric(
    "infersweep_process_resident_bytes",
    "gauge",
    "Resident memory; shared pages count in each process",
    "bytes",
    ROLE,
    _RESOURCES,
)
PROCESS_PSS = Metric(
    "infersweep_process_proportional_bytes",
    "gauge",
    "Proportional set size; shared pages are divided",
    "bytes",
    ROLE,
    _RESOURCES,
)
PROCESS_SWITCHES = Metric(
    "infersweep_process_context_switches",
    "counter",
    "Context switches by kind: voluntary or involuntary",
    "switches",
    (*ROLE, "kind"),
    _RESOURCES,
)
PROCESS_COUNT = Metric(
    "infersweep_process_count", "gauge", "Processes of a role", "processes", ROLE, _RESOURCES
)
PROCESS_THREADS = Metric(
    "infersweep_process_threads", "gauge", "Threads of a role", "threads", ROLE, _RESOURCES
)
CORE_BUSY = Metric(
    "infersweep_core_busy_seconds",
    "counter",
    "Time a CPU was not idle",
    "seconds",
    ("run", "core"),
    _RESOURCES,
)
NETWORK = Metric(
    "infersweep_network_bytes",
    "counter",
    "Bytes over an interface; direction is receive or transmit",
    "bytes",
    ("run", "interface", "direction"),
    _RESOURCES,
)
GPU_UTILISATION = Metric(
    "infersweep_gpu_utilisation_ratio",
    "gauge",
    "Share of time in which any kernel ran, 0-1",
    "ratio",
    ("run", "gpu"),
    _RESOURCES,
)
GPU_ENGINE = Metric(
    "infersweep_gpu_engine_active_ratio",
    "gauge",
    "Share of time in which the graphics or compute engine was active, 0-1",
    "ratio",
    ("run", "gpu"),
    _RESOURCES,
)
GPU_MEMORY = Metric(
    "infersweep_gpu_memory_bytes",
    "gauge",
    "GPU memory in use",
    "bytes",
    ("run", "gpu"),
    _RESOURCES,
)
GPU_CLOCK = Metric(
    "infersweep_gpu_clock_hertz",
    "gauge",
    "Clock by kind: sm or memory",
    "hertz",
    ("run", "gpu", "kind"),
    _RESOURCES,
)
GPU_TEMPERATURE = Metric(
    "infersweep_gpu_temperature_celsius",
    "gauge",
    "Temperature of the GPU",
    "celsius",
    ("run", "gpu"),
    _RESOURCES,
)
GPU_THROTTLED = Metric(
    "infersweep_gpu_throttled",
    "gauge",
    "1 while the clock is held down for this reason",
    "bool",
    ("run", "gpu", "reason"),
    _RESOURCES,
)
POWER = Metric(
    "infersweep_power_watts",
    "gauge",
    "Power of a rail: RAPL, INA3221, Jetson or GPU",
    "watts",
    ("run", "rail"),
    _RESOURCES,
)
ENERGY = Metric(
    "infersweep_energy_joules",
    "counter",
    "Energy of a rail since the run's start",
    "joules",
    ("run", "rail"),
    _RESOURCES,
)
UNMEASURABLE = Metric(
    "infersweep_unmeasurable",
    "gauge",
    "1 for what this machine does not let be measured, with why",
    "bool",
    ("run", "what", "why"),
    _RESOURCES,
)

CLIENT_METRICS = (
    REQUESTS,
    DUE,
    WITHIN_SLO,
    SLO,
    RESPONSE,
    SERVICE,
    LATENESS,
    LEVEL,
    PHASE,
    CEILING,
    TRIALS,
)
RESOURCE_METRICS = (
    PROCESS_CPU,
    PROCESS_RSS,
    PROCESS_PSS,
    PROCESS_SWITCHES,
    PROCESS_COUNT,
    PROCESS_THREADS,
    CORE_BUSY,
    NETWORK,
    GPU_UTILISATION,
    GPU_ENGINE,
    GPU_MEMORY,
    GPU_CLOCK,
    GPU_TEMPERATURE,
    GPU_THROTTLED,
    POWER,
    ENERGY,
    UNMEASURABLE,
)
TABLE = (*SERVER_METRICS, *CLIENT_METRICS, *RESOURCE_METRICS)
