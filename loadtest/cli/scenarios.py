"""``infersweep scenarios``: in which ways requests can come."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table

from loadtest.scenarios import SCENARIOS

NAME = "scenarios"
EXAMPLES = "Example: `infersweep scenarios`"


def run() -> int:
    """List every scenario, what its level counts, and its parameters with their defaults."""
    table = Table("scenario", "what", "level", "default levels", "parameters")
    for scenario in SCENARIOS.values():
        fields = scenario.parameters.model_fields.items()
        table.add_row(
            scenario.name,
            scenario.summary,
            scenario.level_name,
            ",".join(f"{level:g}" for level in scenario.levels),
            ", ".join(
                name if field.is_required() else f"{name}={field.default}" for name, field in fields
            ),
        )
    Console().print(table)
    return 0
