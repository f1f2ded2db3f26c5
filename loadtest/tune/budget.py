"""How long a search may go on: so many settings, or so much time. Pure."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

from serving.errors import UsageError

_FORM = re.compile(r"([0-9.]+)\s*(trials?|s|m|min|h)?", re.I)
_SECONDS = {"s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0}
_HINT = "Write for example '30 trials' or 20m."


@dataclass(frozen=True)
class Budget:
    """One of both is given.

    Attributes:
        settings: how many are started, pruned or not.
        seconds: spent on measuring them; the one that is being measured is finished.
    """

    settings: int | None = None
    seconds: float | None = None

    def is_spent(self, settings: int, seconds: float) -> bool:
        if self.settings is not None:
            return settings >= self.settings
        assert self.seconds is not None
        return seconds >= self.seconds

    @property
    def text(self) -> str:
        if self.settings is not None:
            return f"{self.settings} settings"
        return f"{self.seconds:g} s"


def parse_budget(text: str) -> Budget:
    """``30``, ``30 trials``, ``90s``, ``20m`` or ``1.5h``.

    Raises:
        UsageError: it is none of these, or nothing is left to search with.
    """
    form = _FORM.fullmatch(text.strip())
    unit = (form[2] or "trials").lower() if form else ""
    try:
        number = float(form[1]) if form else math.nan
    except ValueError:
        number = math.nan
    in_trials = unit.startswith("trial")
    if math.isnan(number) or (in_trials and number != int(number)):
        raise UsageError(f"--budget {text!r} is neither settings nor a time", hint=_HINT)
    if number <= 0:
        raise UsageError(f"--budget {text!r} leaves nothing to search with", hint=_HINT)
    if in_trials:
        return Budget(settings=int(number))
    return Budget(seconds=number * _SECONDS[unit])
