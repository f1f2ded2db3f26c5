"""``infersweep setup``: fetch now what later runs need, so that they work without a network."""

from __future__ import annotations

from rich.console import Console

from loadtest.engine.build import build, compiler
from serving.deployment import fetch_needed
from serving.models.repository import list_models
from serving.models.zoo.build import ensure_built

NAME = "setup"
EXAMPLES = "Example: `infersweep setup`"


def run() -> int:
    """Fetch Triton, build every model and the load engine; a second run does nothing."""
    console = Console()
    if compiler():
        build()
    else:
        console.print("no C compiler, so no native load engine: apt-get install gcc libc6-dev")
    fetch_needed(["triton"], console.print)
    for model in list_models():
        ensure_built(model, console.print)
    return 0
