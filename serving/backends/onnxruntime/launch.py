"""How to start the server: its command, and what is known of it beforehand."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from types import MappingProxyType

from serving.backends.base import Launch, ServePlan, replicated
from serving.pipelines import front_facts
from serving.providers import require_execution, runtime_version

_SUPERVISE = Path(__file__).parents[2] / "supervise.py"


@dataclass(frozen=True)
class OnnxRuntimeBackend:
    name: str = "onnxruntime"
    summary: str = "our ONNX Runtime server, with dynamic batching"
    options: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    answers: bool = True

    def launch(self, plan: ServePlan) -> Launch:
        """One process, or one for each replica; in it, each instance of the configuration is a
        thread with its own session.

        Raises:
            MachineError: a provider or a GPU that the configuration wants is not there.
        """
        config = plan.model.config
        count = plan.replicas
        grpc_port, *own_ports = plan.more_ports(1 + count)
        urls = tuple(f"http://{plan.host}:{port}/metrics" for port in own_ports)
        shared = ("--reuse-port", "--metrics-port={port}")
        slo = () if plan.slo_ms is None else ("--slo-ms", str(plan.slo_ms))
        require_execution(config.execution)
        return Launch(
            label=plan.label,
            url=plan.url,
            argv=(
                *(replicated(own_ports) if count > 1 else ()),
                *(sys.executable, "-I", "-S", str(_SUPERVISE)),
                *(sys.executable, "-m", "serving.backends.onnxruntime"),
                *("--repository", str(plan.model.root), "--model", plan.model.name),
                *("--host", plan.host, "--port", str(plan.port), "--grpc-port", str(grpc_port)),
                *slo,
                *(shared if count > 1 else ()),
            ),
            facts={
                "server": f"infersweep {version('infersweep')} on uvloop {version('uvloop')}, "
                f"httptools {version('httptools')}",
                "engine": f"ONNX Runtime {runtime_version()}",
                "provider": config.execution.providers[0],
                "instances": str(config.instances),
                "intra-op threads per instance": str(config.intra_op_threads),
                **front_facts(plan.model),
            },
            metrics_url=f"{plan.url}/metrics" if count == 1 else None,
            replica_metrics_urls=urls if count > 1 else (),
            grpc_url=f"grpc://{plan.host}:{grpc_port}",
        )


BACKEND = OnnxRuntimeBackend()
