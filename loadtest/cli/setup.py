"""``infersweep setup``: fetch now what later runs need, so that they work without a network."""

from __future__ import annotations

from rich.console import Console

from serving.deployment import fetch_needed
from serving.models.repository import list_models
from serving.models.zoo.build import ensure_built

NAME = "setup"
EXAMPLES = "Example: `infersweep setup`"


def run() -> int:
    """Fetch Triton and build every model of the repository; a second run does nothing."""
    console = Console()
    fetch_needed(["triton"], console.print)
    for model in list_models():
        ensure_built(model, console.print)
    return 0
