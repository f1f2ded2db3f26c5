"""Answers at once with zeros of the right shape: the harness's own ceiling, never a competitor."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from serving.backends.base import Launch, ServePlan


@dataclass(frozen=True)
class NullBackend:
    name: str = "null"
    summary: str = "zeros at once: what the harness itself can reach"
    options: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    answers: bool = False

    def launch(self, plan: ServePlan) -> Launch:
        return Launch(
            label=plan.label,
            url=plan.url,
            argv=(
                *(sys.executable, "-m", "serving.backends.null"),
                *("--repository", str(plan.model.root), "--model", plan.model.name),
                *("--host", plan.host, "--port", str(plan.port)),
            ),
            facts={"server": "asyncio and httptools", "engine": "none: zeros"},
        )


BACKEND = NullBackend()
