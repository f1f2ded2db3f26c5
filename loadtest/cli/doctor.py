"""``infersweep doctor``: what this machine has, what it lacks, and what that costs."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import onnxruntime
from rich.console import Console
from rich.table import Table

from loadtest.engine.build import compiler, library_path
from serving.backends.triton.container import image
from serving.backends.triton.locate import Source, find_launcher
from serving.backends.triton.wheel import PACKAGE, installation, is_complete
from serving.cuda import CudaDriver, cuda_driver, hiding_variables
from serving.errors import InfersweepError
from serving.gpu_libraries import Library, libraries, way_out
from serving.host import cpu_budget, cpu_model, format_cpus, gpus, memory_bytes
from serving.models.accelerators import CUDA, TENSORRT
from serving.models.repository import list_models
from serving.providers import loadable_providers, runtime_version

NAME = "doctor"
EXAMPLES = "Example: `infersweep doctor`"


@dataclass(frozen=True)
class Finding:
    """Attributes: ``cost`` is what the user cannot do without it; empty when all is well."""

    what: str
    found: str
    cost: str = ""


def run() -> int:
    """Print what was found; changes nothing."""
    table = Table("part", "found", "what its absence costs")
    for finding in findings():
        table.add_row(
            finding.what, finding.found, finding.cost, style="yellow" if finding.cost else None
        )
    Console().print(table)
    return 0


def findings() -> Iterator[Finding]:
    """Everything worth knowing before a run, most important first."""
    budget = cpu_budget()
    few = (
        "server and generator share a CPU: latencies are upper bounds" if budget.usable < 2 else ""
    )
    yield Finding(
        "CPUs",
        f"{budget.usable} usable ({format_cpus(budget.ids)}) from {budget.source}; {cpu_model()}",
        few,
    )
    yield Finding("memory", f"{memory_bytes() / 1e9:.1f} GB")
    yield _gpus()
    for variable, effect in hiding_variables(os.environ):
        yield Finding("environment", variable, f"{effect}: unset it")
    driver = cuda_driver()
    if driver.cuda:
        yield _driver(driver, onnxruntime.cuda_version)
        yield from _libraries(CUDA, libraries(CUDA))
        yield from _libraries(TENSORRT, libraries(TENSORRT))
    yield from _providers()
    yield _triton()
    for model in list_models():
        missing = "" if model.is_built else "built when first used, which needs a network"
        yield Finding(f"model {model.name}", "built" if model.is_built else "not built", missing)
    yield _engine()
    yield _docker()
    yield _program("prometheus", "no live charts while a run goes on; results are complete")


def _gpus() -> Finding:
    survey = gpus()
    if not survey.gpus:
        return Finding("GPUs", f"none ({survey.why_none})", "CPU execution only")
    names = ", ".join(f"{gpu.name} ({gpu.memory_bytes / 1e9:.0f} GB)" for gpu in survey.gpus)
    return Finding("GPUs", f"{names}; driver {survey.gpus[0].driver}")


def _driver(driver: CudaDriver, needed: str) -> Finding:
    """The driver against the CUDA that ONNX Runtime was built for; the major versions count."""
    major, minor = driver.cuda or (0, 0)
    found = f"runs CUDA up to {major}.{minor}, sees {driver.devices} GPU(s)"
    wanted = f"ONNX Runtime {runtime_version()} needs CUDA {needed}"
    if not needed:
        return Finding("NVIDIA driver", found, "this ONNX Runtime is built without CUDA")
    if major < int(needed.partition(".")[0]):
        return Finding("NVIDIA driver", found, f"{wanted}: update the driver")
    return Finding("NVIDIA driver", f"{found}; {wanted}", driver.why_none)


def _libraries(provider: str, needed: Iterable[Library]) -> Iterator[Finding]:
    """Every library that a provider needs, and the file that will be loaded."""
    for library in needed:
        what = f"{library.name} for {provider.removesuffix('ExecutionProvider')}"
        if library.path:
            yield Finding(what, str(library.path.resolve()))
            continue
        others = ", ".join(str(path) for path in library.others)
        found = f"missing; in other versions: {others}" if others else "missing"
        yield Finding(what, found, f"no {provider}. {way_out([library.name])}")


def _providers() -> Iterator[Finding]:
    for name, fault in loadable_providers().items():
        yield Finding(f"provider {name}", fault or "loads", "cannot be used" if fault else "")


def _triton() -> Finding:
    try:
        launcher = find_launcher(os.environ)
    except InfersweepError as error:
        return Finding("Triton", error.what, f"no triton backend. {error.hint}")
    if launcher.source is not Source.WHEEL:
        return Finding("Triton", f"{launcher.source.value}: {launcher.program or image()}")
    if is_complete(installation()):
        return Finding("Triton", f"wheel {PACKAGE}, fetched: {installation().folder}")
    return Finding("Triton", f"wheel {PACKAGE}", "fetched when first used, which needs a network")


def _engine() -> Finding:
    if library_path().is_file():
        return Finding("load engine", "native, compiled")
    found = compiler()
    if found:
        return Finding("load engine", f"native, compiled by {found} when first used")
    return Finding("load engine", "no C compiler", "--engine python only, a tenth as fast")


def _docker() -> Finding:
    cost = "no container image of Triton, no compose stack"
    if not shutil.which("docker"):
        return Finding("Docker", "not installed", cost)
    answer = subprocess.run(
        ["docker", "version", "--format", "{{.Server.Version}}"],
        capture_output=True,
        text=True,
        check=False,
    )
    if answer.returncode != 0:
        return Finding("Docker", "client only, no daemon answers", cost)
    return Finding("Docker", f"daemon {answer.stdout.strip()}")


def _program(name: str, cost: str) -> Finding:
    path = shutil.which(name)
    return Finding(name, str(Path(path)) if path else "not on PATH", "" if path else cost)
