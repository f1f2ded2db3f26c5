"""The baseline that most teams start with: FastAPI on gunicorn, one session per worker."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.metadata import version
from types import MappingProxyType

from serving.backends.base import Launch, ServePlan
from serving.backends.fastapi.settings import Settings
from serving.errors import ModelError, UsageError
from serving.models.zoo import ENTRIES
from serving.providers import runtime_version

ENGINES: Mapping[str, str] = MappingProxyType(
    {"onnxruntime": "the same model.onnx (default)", "torch": "PyTorch eager, inference mode"}
)


@dataclass(frozen=True)
class FastApiBackend:
    name: str = "fastapi"
    summary: str = "FastAPI on gunicorn and uvicorn; fastapi:torch runs PyTorch eager"
    options: Mapping[str, str] = field(default_factory=lambda: ENGINES)
    answers: bool = True

    def launch(self, plan: ServePlan) -> Launch:
        """One worker per instance, each with as many inference threads as the config says.

        Raises:
            UsageError: the engine is unknown.
            ModelError: the model exists as ONNX only, and PyTorch was asked for.
        """
        engine = plan.option or "onnxruntime"
        if engine not in ENGINES:
            raise UsageError(
                f"{plan.label!r}: there is no engine {engine!r}",
                hint=f"Engines: {', '.join(ENGINES)}.",
            )
        config = plan.model.config
        entry = ENTRIES.get(plan.model.name)
        if engine == "torch" and (entry is None or entry.torch_module is None):
            raise ModelError(
                f"model {plan.model.name!r} exists as ONNX only, so {plan.label} cannot run it",
                hint="Leave this backend out, or use fastapi.",
            )
        if len(set(config.execution.devices)) > 1:
            raise ModelError(
                f"model {plan.model.name!r} asks for several GPUs, and a worker of {plan.label} "
                "cannot know which is its own",
                hint="Name one GPU in instance_group, or use onnxruntime.",
            )
        settings = Settings(
            repository=plan.model.root,
            model=plan.model.name,
            engine=engine,
            inference_threads=1,
        )
        return Launch(
            label=plan.label,
            url=plan.url,
            argv=(
                *(sys.executable, "-m", "gunicorn", "serving.backends.fastapi.app:create_app()"),
                *("--worker-class", "uvicorn_worker.UvicornWorker"),
                *("--workers", str(config.instances)),
                *("--bind", f"{plan.host}:{plan.port}"),
                *("--graceful-timeout", "10", "--keep-alive", "75", "--no-control-socket"),
            ),
            env=settings.to_environment(),
            worker_count=config.instances,
            facts={
                "server": f"gunicorn {version('gunicorn')}, uvicorn {version('uvicorn')}, "
                f"FastAPI {version('fastapi')}",
                "engine": _engine_version(engine),
                "workers": str(config.instances),
                "intra-op threads per worker": str(config.intra_op_threads),
                "inferences at once per worker": str(settings.inference_threads),
            },
            ready_within_s=120.0,
        )


def _engine_version(engine: str) -> str:
    if engine == "torch":
        return f"PyTorch {version('torch')} eager"
    return f"ONNX Runtime {runtime_version()}"


BACKEND = FastApiBackend()
