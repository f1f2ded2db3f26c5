"""Triton's container image as a command: the same addresses, paths and CPUs as outside it."""

from __future__ import annotations

import os
from pathlib import Path

from serving.backends.base import ServePlan
from serving.host import format_cpus

IMAGE_VARIABLE = "INFERSWEEP_TRITON_IMAGE"
# 24.10 holds server 2.51.0, as the wheel does, so both launchers serve the same Triton.
DEFAULT_IMAGE = "nvcr.io/nvidia/tritonserver:24.10-py3"
WARNING = "the container runs outside this process tree: its CPU time and memory are not counted"


def image() -> str:
    return os.environ.get(IMAGE_VARIABLE, DEFAULT_IMAGE)


def container_command(plan: ServePlan) -> tuple[str, ...]:
    """The part of the command that stands before ``tritonserver``.

    The caller pins only Docker's client, so the CPUs are given to the container itself.
    """
    mounts = [part for path in _mounted(plan) for part in ("--volume", f"{path}:{path}:ro")]
    return (
        *("docker", "run", "--rm", "--init", "--network", "host", "--ipc", "host"),
        *("--cpuset-cpus", format_cpus(plan.cpus)),
        *(part for name, value in plan.env.items() for part in ("--env", f"{name}={value}")),
        *(("--gpus", "all") if plan.model.config.accelerator == "gpu" else ()),
        *mounts,
        image(),
    )


def _mounted(plan: ServePlan) -> list[Path]:
    """The repository, and the folders that its version links point to."""
    root = plan.model.root.resolve()
    models = (plan.model, *plan.model.steps)
    versions = [(one.folder / str(v)).resolve() for one in models for v in one.versions]
    return [root, *(path for path in versions if not path.is_relative_to(root))]
