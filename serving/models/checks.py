"""Optional checks of input values: ``check.<input>`` parameters of ``config.pbtxt``.

A frame of NaN or of the wrong scale is answered like any other, and the answer is worthless. A
check refuses it: ``finite``, or a range such as ``0..255``, which is finite too.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from serving.errors import ModelError
from serving.protocol import Array, ProtocolError

PREFIX = "check."
_NUMBER = r"[-+]?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?"
RANGE = re.compile(rf"({_NUMBER})\.\.({_NUMBER})")
"""``LOW..HIGH``, both ends included."""


@dataclass(frozen=True)
class Check:
    """Attributes: ``low`` and ``high`` are inclusive; ``None`` asks for finite values only."""

    low: float | None = None
    high: float | None = None

    def apply(self, name: str, array: Array) -> None:
        """Raises ProtocolError when a value of ``array`` is not allowed."""
        if not array.size:
            return
        if self.low is None or self.high is None:
            # The sum of finite numbers is rarely infinite; that of others is never finite.
            if not np.isfinite(array.sum()) and not np.isfinite(array).all():
                raise ProtocolError(f"input {name!r}: its values must be finite")
            return
        least, most = array.min(), array.max()
        if not (self.low <= least and most <= self.high):
            raise ProtocolError(
                f"input {name!r}: its values must lie in {self.low:g}..{self.high:g}, "
                f"they lie in {least:g}..{most:g}"
            )


def parse_checks(
    parameters: Mapping[str, str], inputs: Mapping[str, str], where: str
) -> dict[str, Check]:
    """Input name to check.

    Args:
        parameters: all string parameters of the configuration; others are left alone.
        inputs: input name to datatype.
        where: the file, for the message.

    Raises:
        ModelError: a check names no numeric input of the model, or says nothing that is known.
    """
    checks = {}
    for key, text in parameters.items():
        if not key.startswith(PREFIX):
            continue
        name = key.removeprefix(PREFIX)
        if inputs.get(name, "BYTES") in ("BYTES", "BOOL"):
            raise ModelError(
                f"{where}: parameter {key!r} names no input of numbers",
                hint=f"Inputs: {', '.join(inputs)}.",
            )
        found = RANGE.fullmatch(text)
        if text != "finite" and (not found or float(found[1]) > float(found[2])):
            raise ModelError(
                f"{where}: parameter {key!r} is {text!r}",
                hint="Write 'finite', or a range such as '0..255'.",
            )
        checks[name] = Check(float(found[1]), float(found[2])) if found else Check()
    return checks
