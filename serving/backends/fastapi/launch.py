"""How to start the baseline: its command, and what is known of it beforehand."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.metadata import version
from types import MappingProxyType

from serving.backends.base import Launch, ServePlan
from serving.backends.fastapi.gunicorn_hooks import FOLDER_VARIABLE
from serving.backends.fastapi.scripting import why_not_scriptable
from serving.backends.fastapi.settings import Settings
from serving.errors import MachineError, ModelError, UsageError
from serving.knobs.table import GUNICORN_ASGI, WORKER_CLASSES
from serving.models.repository import Model
from serving.models.weights import cache_folder
from serving.models.zoo import ENTRIES
from serving.pipelines import front_facts
from serving.providers import runtime_version

ENGINES: Mapping[str, str] = MappingProxyType(
    {
        "onnxruntime": "the same model.onnx (default)",
        "torch": "PyTorch eager, inference mode",
        "torchscript-trace": "TorchScript of one traced run, frozen",
        "torchscript-script": "TorchScript of the module's source, frozen",
        "torch-compile": "torch.compile, for any number of rows; minutes at the first start",
    }
)
_TOLD = {
    "torch": "eager",
    "torchscript-trace": "TorchScript, traced",
    "torchscript-script": "TorchScript, scripted",
    "torch-compile": "torch.compile",
}
"""Engines of PyTorch, as the record names them."""
_READY_WITHIN_S, _COMPILED_WITHIN_S = 120.0, 900.0


@dataclass(frozen=True)
class FastApiBackend:
    name: str = "fastapi"
    summary: str = "FastAPI on gunicorn and uvicorn; fastapi:torch and others run PyTorch"
    options: Mapping[str, str] = field(default_factory=lambda: ENGINES)
    answers: bool = True

    def launch(self, plan: ServePlan) -> Launch:
        """One worker per instance, each with as many inference threads as the config says.

        Raises:
            UsageError: the engine is unknown, or no model of the zoo has it.
            ModelError: the model exists as ONNX only, or PyTorch cannot compile it.
            MachineError: there is no compiler for what PyTorch writes, or the work folder cannot be
                written.
        """
        engine = plan.option or "onnxruntime"
        if engine not in ENGINES:
            none = "no model of the zoo has a JAX function" if engine == "jax" else "there is none"
            raise UsageError(
                f"{plan.label!r} asks for engine {engine!r}, and {none}",
                hint=f"Engines: {', '.join(ENGINES)}.",
            )
        config = plan.model.config
        if engine in _TOLD:
            _require_torch(plan.label, engine, plan.model.computed)
        if len(set(config.execution.devices)) > 1:
            raise ModelError(
                f"model {plan.model.name!r} asks for several GPUs, and a worker of {plan.label} "
                "cannot know which is its own",
                hint="Name one GPU in instance_group, or use onnxruntime.",
            )
        (metrics_port,) = plan.more_ports(1)
        settings = Settings(
            repository=plan.model.root,
            model=plan.model.name,
            engine=engine,
            inference_threads=int(plan.setting.get("worker_threads", "1")),
            metrics_port=metrics_port,
            metrics_host=plan.host,
            slo_ms=plan.slo_ms,
        )
        worker_class = plan.setting.get("worker_class", WORKER_CLASSES[0])
        return Launch(
            label=plan.label,
            url=plan.url,
            argv=(
                *(sys.executable, "-m", "gunicorn", "serving.backends.fastapi.app:create_app()"),
                *("--config", "python:serving.backends.fastapi.gunicorn_hooks"),
                *("--worker-class", worker_class),
                *("--workers", str(config.instances)),
                *("--bind", f"{plan.host}:{plan.port}"),
                *("--graceful-timeout", graceful_timeout_s(worker_class)),
                *("--keep-alive", "75", "--no-control-socket"),
            ),
            env={
                **settings.to_environment(),
                **compiler_environment(engine),
                FOLDER_VARIABLE: _metrics_folder(plan),
            },
            worker_count=config.instances,
            facts={
                "server": f"gunicorn {version('gunicorn')}, uvicorn {version('uvicorn')}, "
                f"FastAPI {version('fastapi')}",
                "engine": _engine_version(engine),
                "workers": str(config.instances),
                "intra-op threads per worker": str(config.intra_op_threads),
                "inferences at once per worker": str(settings.inference_threads),
                **front_facts(plan.model),
            },
            metrics_url=f"http://{plan.host}:{metrics_port}/metrics",
            ready_within_s=_COMPILED_WITHIN_S if engine == "torch-compile" else _READY_WITHIN_S,
        )


def graceful_timeout_s(worker_class: str) -> str:
    """How long a worker that is told to end may take.

    gunicorn's own ASGI worker waits that long for kept connections too, even if they are idle.
    """
    return "5" if worker_class == GUNICORN_ASGI else "10"


def _require_torch(label: str, engine: str, model: Model) -> None:
    """Raises ModelError or MachineError when PyTorch cannot run ``model`` with this engine."""
    entry = ENTRIES.get(model.name)
    if entry is None or entry.torch_module is None:
        raise ModelError(
            f"model {model.name!r} exists as ONNX only, so {label} cannot run it",
            hint="Leave this backend out, or use fastapi.",
        )
    if engine == "torchscript-script" and (why := why_not_scriptable(model.name)):
        raise ModelError(
            f"{label} cannot run model {model.name!r}, which torch.jit.script does not compile: "
            f"{why}",
            hint="Use fastapi:torchscript-trace.",
        )
    compiler = os.environ.get("CXX", "g++")
    if engine == "torch-compile" and shutil.which(compiler) is None:
        raise MachineError(
            f"{label} needs a C++ compiler, and {compiler} is not here",
            hint="Install g++, or name another in CXX.",
        )


def _metrics_folder(plan: ServePlan) -> str:
    """A new one: what another server counted must not be in it. The server takes it away."""
    try:
        return tempfile.mkdtemp(prefix="metrics-", dir=plan.work_folder.absolute())
    except OSError as error:
        raise MachineError(
            f"the folder for the metrics of {plan.label} cannot be made in {plan.work_folder}: "
            f"{error.strerror}",
            hint="Free disk space there, or choose another folder.",
        ) from None


def compiler_environment(engine: str) -> dict[str, str]:
    """Kernels are kept for the next start, and compiled without processes that stay behind."""
    if engine != "torch-compile":
        return {}
    return {
        "TORCHINDUCTOR_CACHE_DIR": str(cache_folder() / "inductor"),
        "TORCHINDUCTOR_COMPILE_THREADS": "1",
    }


def _engine_version(engine: str) -> str:
    if engine in _TOLD:
        return f"PyTorch {version('torch')}, {_TOLD[engine]}"
    return f"ONNX Runtime {runtime_version()}"


BACKEND = FastApiBackend()
