"""A model against a variant of itself: the same questions, a session each."""

from __future__ import annotations

import platform
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

from loadtest.playbook.called import Called, Calls, Job
from loadtest.playbook.engines import session_calls
from loadtest.playbook.experiment import Lab
from serving.models.variants.parameters import read_record

CPUINFO = Path("/proc/cpuinfo")

_INSTRUCTIONS: Mapping[str, str] = {
    "avx2": "AVX2",
    "avx512f": "AVX-512",
    "avx_vnni": "AVX-VNNI",
    "avx512_vnni": "AVX-512 VNNI",
    "avx512_bf16": "AVX-512 BF16",
    "avx512_fp16": "AVX-512 FP16",
    "amx_int8": "AMX INT8",
    "amx_bf16": "AMX BF16",
    "fphp": "FP16",
    "asimddp": "dot product",
    "i8mm": "INT8 matrices",
    "bf16": "BF16",
    "sve": "SVE",
}
"""Flags of the kernel, x86's before ARM's, that decide what a lower precision is worth."""


def instructions(cpuinfo: str) -> str:
    """What of ``_INSTRUCTIONS`` the first processor in the text of ``/proc/cpuinfo`` has."""
    for line in cpuinfo.splitlines():
        key, _, value = line.partition(":")
        if key.strip() in ("flags", "Features"):
            flags = set(value.split())
            return ", ".join(name for flag, name in _INSTRUCTIONS.items() if flag in flags)
    return ""


def _cpu_facts() -> dict[str, str]:
    """Empty where the kernel does not tell."""
    if not CPUINFO.is_file():
        return {}
    found = instructions(CPUINFO.read_text(encoding="utf-8")) or "none of those that count"
    return {"instructions": f"{platform.machine()}: {found}"}


def build(job: Job) -> Calls:
    """The session of the job's model, with what a lower precision depends on among its facts."""
    calls = session_calls(job)
    record = read_record(job.model.config)
    made = {} if record is None else {"variant": record.made}
    return replace(calls, facts={**calls.facts, **_cpu_facts(), **made})


def against_variant(kind: str, what: str) -> Callable[[Lab], tuple[Called, ...]]:
    """Two arms: the model as it is, and its variant of ``kind``, which is ``what`` in words."""

    def arms(_lab: Lab) -> tuple[Called, ...]:
        return (
            Called("parent", "ONNX Runtime, the model as it is", build),
            Called(kind, f"ONNX Runtime, {what}", build, model=lambda lab: lab.variant(kind)),
        )

    return arms
