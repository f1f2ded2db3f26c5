"""NVIDIA Triton: the real server, from wherever this machine can have it."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType

from serving.backends.base import Launch, ServePlan, replicated
from serving.backends.triton.container import WARNING, container_command, image
from serving.backends.triton.locate import (
    PROGRAM,
    Launcher,
    Source,
    find_launcher,
    native_backends,
    native_version,
)
from serving.backends.triton.wheel import (
    PACKAGE,
    PACKAGE_VERSION,
    ensure_triton,
    installed_onnxruntime,
)
from serving.errors import ModelError, UsageError
from serving.pipelines import front_facts

SHARED_MEMORY = Path("/dev/shm")
# Two instances that joined images of 640 x 640 were seen to hold 150 MB there together.
AMPLE_SHARED_MEMORY_BYTES = 256_000_000


@dataclass(frozen=True)
class TritonBackend:
    name: str = "triton"
    summary: str = "NVIDIA Triton Inference Server, with or without Docker"
    options: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    answers: bool = True

    def launch(self, plan: ServePlan) -> Launch:
        """One server; its model instances and batching are those of ``config.pbtxt``.

        The wheel is fetched here when it is the launcher and was not fetched before.

        Raises:
            MachineError: no Triton can run here.
            FetchError: the wheel is the launcher and could not be fetched.
            ModelError: the model asks for a GPU and the wheel's server is the launcher.
        """
        launcher = find_launcher(os.environ)
        if launcher.source is Source.WHEEL:
            return from_wheel(plan)
        if launcher.source is Source.CONTAINER:
            facts = {
                "launcher": f"{launcher.source.value} ({image()})",
                "server version": "the image's",
            }
            argv = (*container_command(plan), PROGRAM)
            launch = _launch(plan, argv, facts=facts, warnings=(WARNING,))
            return replace(launch, hidden="it runs in a container")
        return _from_installed(plan, launcher)


def from_wheel(plan: ServePlan) -> Launch:
    """The wheel's server, whatever else is installed.

    Raises:
        MachineError: it cannot run here.
        FetchError: it could not be fetched.
        ModelError: the model asks for a GPU.
        UsageError: the repository lies where its Python stub cannot serve it.
    """
    if plan.model.config.accelerator == "gpu":
        raise ModelError(
            f"model {plan.model.name!r} asks for a GPU, and Triton from the wheel serves on CPUs",
            hint="Use KIND_CPU, or set INFERSWEEP_TRITON=container.",
        )
    if " " in str(plan.model.root.resolve()):
        raise UsageError(
            f"Triton from the wheel cannot serve {plan.model.root.resolve()}: its Python stub "
            "splits paths at spaces",
            hint="Use a folder without a space, with --out or --repository.",
        )
    found = ensure_triton(lambda line: print(line, file=sys.stderr))  # noqa: T201
    versions = found.versions
    package, _ = installed_onnxruntime()
    return _launch(
        plan,
        (str(found.program),),
        backends=found.backends,
        env=found.environment,
        facts={
            "launcher": f"{Source.WHEEL.value} ({PACKAGE} {PACKAGE_VERSION})",
            "server version": versions["tritonserver"],
            "onnxruntime backend": "python-based (wheel)",
            "engine": f"ONNX Runtime {versions[package]}",
            "numpy of the stub": versions["numpy"],
            **front_facts(plan.model, versions["pillow"]),
        },
        warnings=shared_memory_warnings(shutil.disk_usage(SHARED_MEMORY).free),
    )


def shared_memory_warnings(free_bytes: int) -> tuple[str, ...]:
    """The stub exchanges tensors through shared memory, which containers often keep small."""
    if free_bytes >= AMPLE_SHARED_MEMORY_BYTES:
        return ()
    free = f"{SHARED_MEMORY} has {free_bytes / 1e6:.0f} MB free"
    return (f"{free}: Triton's stub may fail with large tensors; in Docker, raise --shm-size",)


def _from_installed(plan: ServePlan, launcher: Launcher) -> Launch:
    program = launcher.program or Path(PROGRAM)
    return _launch(
        plan,
        (str(program),),
        backends=native_backends(program),
        facts={
            "launcher": f"{launcher.source.value} ({program})",
            "server version": native_version(program),
        },
    )


def _launch(
    plan: ServePlan,
    program: tuple[str, ...],
    *,
    facts: Mapping[str, str],
    backends: Path | None = None,
    env: Mapping[str, str] | None = None,
    warnings: tuple[str, ...] = (),
) -> Launch:
    config = plan.model.config
    grpc_port, *metrics_ports = plan.more_ports(1 + plan.replicas)
    urls = tuple(f"http://{plan.host}:{port}/metrics" for port in metrics_ports)
    # Its default of 8 threads would contend for the few CPUs that the server is given.
    threads = plan.setting.get("http_threads") or str(max(1, len(plan.cpus)))
    single = plan.replicas == 1
    own_port = metrics_ports[0] if single else "{port}"
    return Launch(
        label=plan.label,
        url=plan.url,
        argv=(
            *(() if single else replicated(metrics_ports)),
            *program,
            f"--model-repository={plan.model.root.resolve()}",
            *("--model-control-mode=explicit", f"--load-model={plan.model.name}"),
            "--disable-auto-complete-config",
            *(f"--http-address={plan.host}", f"--http-port={plan.port}"),
            f"--http-thread-count={threads}",
            *(f"--grpc-address={plan.host}", f"--grpc-port={grpc_port}"),
            *(f"--metrics-address={plan.host}", f"--metrics-port={own_port}"),
            *(() if single else ("--reuse-http-port=true", "--reuse-grpc-port=true")),
            # Below the grace that a stopping process is given before it is killed.
            "--exit-timeout-secs=5",
            *((f"--backend-directory={backends}",) if backends else ()),
        ),
        env=env or {},
        facts={
            "onnxruntime backend": "native",
            **facts,
            "instances": str(config.instances),
            "intra-op threads per instance": str(config.intra_op_threads),
            "HTTP threads": threads,
        },
        warnings=warnings,
        metrics_url=urls[0] if single else None,
        replica_metrics_urls=() if single else urls,
        grpc_url=f"grpc://{plan.host}:{grpc_port}",
        ready_within_s=120.0,
    )


BACKEND = TritonBackend()
__all__ = ["BACKEND", "ensure_triton", "find_launcher", "from_wheel"]
