"""What was found of one model: ``model-profile.json``."""

from __future__ import annotations

from pydantic import Field

from loadtest.record import Record
from loadtest.results import SCHEMA_VERSION, Manifest

NAME = "model-profile.json"

ONNXRUNTIME = "ONNX Runtime's profiler"
TORCH = "the PyTorch profiler"
SERVER = "the server under load"
NSIGHT = "Nsight Systems"


class Operator(Record):
    """Calls of one operator, or of all operators of one type."""

    op_type: str
    node: str | None = Field(default=None, description="null where all of a type are added up")
    provider: str
    calls: int
    total_ms: float
    share: float = Field(description="of the time of all kernels, 0 to 1")

    @property
    def mean_us(self) -> float:
        return self.total_ms * 1e3 / self.calls


class RuntimeProfile(Record):
    """ONNX Runtime, one run after the other."""

    runs: int = Field(description="that are counted")
    warm_up_runs: int = Field(description="in front of them, left out")
    intra_op_threads: int
    session_ms: float = Field(description="mean of one run")
    kernels_ms: float = Field(description="sum over the kernels of one run, mean")
    by_type: tuple[Operator, ...]
    by_node: tuple[Operator, ...]
    trace: str = Field(description="file in this folder")


class TorchProfile(Record):
    """The zoo's PyTorch module in inference mode; a kernel's time is without what it calls."""

    runs: int
    warm_up_runs: int
    intra_op_threads: int
    run_ms: float = Field(description="mean of one run, with the profiler")
    kernels_ms: float = Field(description="sum over the operators of one run, mean")
    by_type: tuple[Operator, ...]
    trace: str = Field(description="file in this folder, in Chrome's format")


class Group(Record):
    """Samples with one purpose."""

    name: str
    samples: int
    share: float = Field(description="of all busy samples, 0 to 1")


class Function(Record):
    """Samples in which this function, and none that it called, was at work."""

    name: str
    group: str
    samples: int
    share: float = Field(description="of all busy samples, 0 to 1")


class SeenProcess(Record):
    """One process of the server."""

    pid: int
    name: str
    samples: int = Field(description="busy ones")
    note: str = Field(default="", description="why there are none")


class Observer(Record):
    """What sampling did to the server: right answers per second in one closed loop."""

    before_rps: float
    sampled_rps: float
    after_rps: float
    ratio: float = Field(description="sampled over before and after; 1 where it costs nothing")


class ServerProfile(Record):
    """A server's Python stacks, sampled under load."""

    backend: str
    users: int
    rate_hz: int
    sampled_s: float
    native: bool = Field(description="whether C and C++ frames were read, too")
    samples: int
    waiting: int = Field(description="of them, threads that waited")
    errors: int = Field(description="stacks that could not be read")
    behind_s: float = Field(description="how far sampling fell behind its rate; 0 for not at all")
    groups: tuple[Group, ...]
    functions: tuple[Function, ...]
    processes: tuple[SeenProcess, ...]
    observer: Observer | None = Field(description="null where there is no whole second of each")
    stacks: str = Field(description="file in this folder, folded")

    @property
    def busy(self) -> int:
        return self.samples - self.waiting


class ModelProfile(Record):
    schema_version: int = SCHEMA_VERSION
    manifest: Manifest
    runtime: RuntimeProfile | None = None
    torch: TorchProfile | None = None
    server: ServerProfile | None = None
    nsight: str | None = Field(default=None, description="script in this folder")
    missing: dict[str, str] = Field(default={}, description="part to why it is not there")
    complete: bool = Field(description="whether it was not interrupted")
    sentence: str
