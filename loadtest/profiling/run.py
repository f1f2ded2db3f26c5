"""The parts of a profile, one after the other; one that fails leaves the others standing."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from loadtest.folder import ResultsFolder
from loadtest.profiling.nsight import NAME as NSIGHT_SCRIPT
from loadtest.profiling.nsight import script_of
from loadtest.profiling.record import (
    NAME,
    NSIGHT,
    ONNXRUNTIME,
    SERVER,
    TORCH,
    ModelProfile,
    RuntimeProfile,
    ServerProfile,
    TorchProfile,
)
from loadtest.profiling.server import SampledLoad, profile_server
from loadtest.profiling.traced import Place, profile_runtime, profile_torch, why_no_module
from loadtest.profiling.wording import sentence_of
from loadtest.rig import Rig
from serving.errors import InfersweepError
from serving.host import gpus

INTERRUPTED = "it was interrupted"


@dataclass
class Profiling:
    """One profile.

    Attributes:
        rig: has settings of one backend; ``duration_s`` is that of each part.
        load: what the server is put under.
        failures: errors in the order of the parts; what cannot be there is none.
        complete: whether it was not interrupted.
    """

    rig: Rig
    load: SampledLoad
    failures: list[InfersweepError] = field(default_factory=list)
    complete: bool = True
    _runtime: RuntimeProfile | None = None
    _torch: TorchProfile | None = None
    _server: ServerProfile | None = None
    _nsight: str | None = None
    _missing: dict[str, str] = field(default_factory=dict)

    def run(self) -> None:
        """Every part; an interruption keeps those that are done."""
        parts = list(self._parts())
        for number, (name, part) in enumerate(parts):
            try:
                part()
            except InfersweepError as error:
                self.failures.append(error)
                self._missing[name] = str(error)
            except KeyboardInterrupt:
                self.complete = False
                self._missing |= {left: INTERRUPTED for left, _ in parts[number:]}
                return

    @property
    def found(self) -> bool:
        """Whether any part was measured."""
        return any((self._runtime, self._torch, self._server))

    def _parts(self) -> Iterator[tuple[str, Callable[[], None]]]:
        yield NSIGHT, self._prepare_nsight
        yield ONNXRUNTIME, self._profile_runtime
        yield TORCH, self._profile_torch
        yield SERVER, self._profile_server

    def _place(self) -> Place:
        folder = self.rig.folder
        return Place(self.rig.settings.server_cpus, folder.path, folder.logs)

    def _profile_runtime(self) -> None:
        self.rig.listener.stage("ONNX Runtime's profiler")
        model, seconds = self.rig.model.computed, self.rig.settings.duration_s
        self._runtime = profile_runtime(model, seconds, self._place())

    def _profile_torch(self) -> None:
        model, seconds = self.rig.model.computed, self.rig.settings.duration_s
        why = why_no_module(model)
        if why:
            self._missing[TORCH] = why
            return
        self.rig.listener.stage("the PyTorch profiler")
        self._torch = profile_torch(model, seconds, self._place())

    def _profile_server(self) -> None:
        rig = self.rig
        rig.open()
        (label,) = rig.settings.backends
        self._server = profile_server(rig, rig.arm(label), self.load)

    def _prepare_nsight(self) -> None:
        found = gpus()
        if not found.gpus:
            self._missing[NSIGHT] = f"there is no NVIDIA GPU to trace: {found.why_none}"
            return
        settings = self.rig.settings
        (label,) = settings.backends
        launch = self.rig.plan(self.rig.arm(label))
        load = ["infersweep", "load", "--url", launch.url, "--model", settings.model]
        load += [
            "--repository",
            str(self.rig.model.root.absolute()),
            "--levels",
            str(self.load.users),
        ]
        load += ["--duration", f"{settings.duration_s:g}", "--out", "nsight-load"]
        text = script_of(launch, settings.server_cpus, load)
        path = self.rig.folder.write_page(NSIGHT_SCRIPT, text)
        path.chmod(0o755)
        self._nsight = NSIGHT_SCRIPT

    def write(self) -> ModelProfile:
        """Derive and write ``model-profile.json`` from what is there."""
        folder: ResultsFolder = self.rig.folder
        record = ModelProfile(
            manifest=folder.read_manifest(),
            runtime=self._runtime,
            torch=self._torch,
            server=self._server,
            nsight=self._nsight,
            missing=self._missing,
            complete=self.complete,
            sentence=sentence_of(self._runtime, self._torch, self._server),
        )
        folder.write_derived(NAME, record)
        return record
