"""Is the tuned setting better than the default, measured again? From one value per repeat. Pure.

The best of many measurements is partly the luckiest one, so the rate that won the search counts for
nothing here: both settings are searched again, in turns, each repeat on a server of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from loadtest.ranking import RESOLUTION
from loadtest.rounding import four_digits
from loadtest.significance import Change, compare

Decision = Literal["gain", "no significant gain", "loss", "only tuned", "not confirmed", "too few"]
"""``only tuned``: the default met the objectives at no rate. ``not confirmed``: the tuned setting
met them in half of the repeats or fewer. ``too few``: repeats, to tell anything from chance."""


@dataclass(frozen=True)
class Gain:
    """Attributes: rates in requests/s, one per repeat that met the objectives."""

    decision: Decision
    default_rps: tuple[float, ...]
    tuned_rps: tuple[float, ...]
    change: Change | None = None

    @property
    def is_one(self) -> bool:
        return self.decision in ("gain", "only tuned")

    @property
    def sentence(self) -> str:
        """How the tuned setting compares, to be read after its name and a colon."""
        if self.decision == "only tuned":
            return "the default met the objectives at no rate that was measured"
        if self.decision == "not confirmed":
            return f"it met the objectives in {len(self.tuned_rps)} repeats only"
        assert self.change is not None
        change = self.change
        told = f"{change.ratio:.3f} times the default"
        if change.low is not None and change.high is not None:
            told += (
                f" ({change.low:.3f} to {change.high:.3f} at 95%, {len(self.tuned_rps)} repeats)"
            )
        return told


def gain_of(default_rps: Sequence[float], tuned_rps: Sequence[float], repeats: int) -> Gain:
    """What ``repeats`` searches of each setting found; those that found no rate are left out."""
    default, tuned = tuple(default_rps), tuple(tuned_rps)
    if 2 * len(tuned) <= repeats:
        return Gain("not confirmed", default, tuned)
    if not default:
        return Gain("only tuned", default, tuned)
    change = compare(default, tuned, resolution=RESOLUTION)
    decisions: dict[str, Decision] = {
        "faster": "gain",
        "slower": "loss",
        "no significant difference": "no significant gain",
        "too few repeats": "too few",
    }
    return Gain(decisions[change.verdict], default, tuned, change)


def rate_text(rates_rps: Sequence[float]) -> str:
    """The geometric mean, as ``compare`` takes it."""
    product = 1.0
    for rate_rps in rates_rps:
        product *= rate_rps ** (1 / len(rates_rps))
    return f"{four_digits(product)} requests/s"
