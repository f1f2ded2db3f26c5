"""What each variant of the image classifier is worth: size, accuracy drop, and speed on one core.

Run by ``make bench-models``. Parent and variant take turns on one thread and one CPU; the ratio is
the median over pairs. Every variant is kept, whatever it loses: the row says what that is.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import onnxruntime

from benchmarks.normalise import in_turns
from benchmarks.rows import Row, at_least, stated, write
from serving.deriving.derive import Derived, Limits, derive
from serving.models.repository import Model, find_model
from serving.models.samples import samples_for
from serving.models.variants.kind import Order
from serving.models.variants.registry import KINDS
from serving.models.zoo.build import ensure_built
from serving.session import open_session

PARENT = "image_classifier"
PAIRS = 200
_MB = 1e6


@dataclass(frozen=True)
class Case:
    """Attributes: ``order`` has what ``Order`` has; ``target`` is what the speed must reach."""

    kind: str
    order: Mapping[str, Any] = field(default_factory=dict)
    target: float | None = None


CASES = (
    Case("int8-static", target=1.5),
    Case("int8-dynamic"),
    Case("pruned", {"ratio": 0.25}),
    Case("fp16"),
    Case("simplified"),
)


def main() -> None:
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    shipped = find_model(PARENT)
    ensure_built(shipped, print)
    with tempfile.TemporaryDirectory(prefix="infersweep-bench-") as folder:
        parent = Model(Path(folder), PARENT)
        shutil.copytree(shipped.folder, parent.folder)
        found = [_row(parent, case) for case in CASES]
    write("variants", found, {"onnxruntime": onnxruntime.__version__})


def _row(parent: Model, case: Case) -> Row:
    made = derive(
        Order(parent, **case.order), KINDS[case.kind], Limits(0.0, keep_anyway=True), print
    )
    ratios = _time_ratios(parent, made.model)
    title = f"{case.kind}: time of {PARENT} / its own, one thread"
    row = at_least(title, ratios, case.target) if case.target else stated(title, ratios)
    return replace(row, note=f"{row.note}; {_told(made)}")


def _time_ratios(parent: Model, variant: Model) -> list[float]:
    inputs = samples_for(parent)[0].inputs
    right, session = open_session(parent), open_session(variant)
    pairs = in_turns(lambda: right.run(inputs), lambda: session.run(inputs), PAIRS)
    return [before / after for before, after in pairs]


def _told(made: Derived) -> str:
    record = made.record
    sizes = f"{record.size_bytes / _MB:.1f} of {record.parent_size_bytes / _MB:.1f} MB"
    drop = f"drop {record.drop:.1%} ({record.measure}, {record.inputs} inputs)"
    largest = f"largest difference {record.largest_difference:.2g}"
    return f"{sizes}; {drop}, cosine {record.cosine:.5f}, {largest}; {record.made}"


if __name__ == "__main__":
    main()
