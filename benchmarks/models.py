"""What the zoo's models cost on one thread: beside the shipped graphs, and per row of a batch.

Run by ``make bench-models``.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from dataclasses import replace

import onnxruntime

from benchmarks import normalise
from benchmarks.normalise import in_turns, open_built
from benchmarks.rows import Row, at_least, stated, write
from serving.models.repository import find_model
from serving.models.samples import samples_for, stack_rows
from serving.models.zoo import ENTRIES

BATCH = 16
SECONDS = 6.0
LEAST_PAIRS, MOST_PAIRS = 5, 500
TARGETS: Mapping[str, float] = {"flight_policy": 8.0}
"""The model whose rows are small; what a batch gives the others is only stated."""


def main() -> None:
    versions = {"onnxruntime": onnxruntime.__version__}
    write("models", [*normalise.rows(), *map(_batching, ENTRIES)], versions)


def _batching(name: str) -> Row:
    """Time of a row alone over that of a row in a batch; turn by turn the same rows."""
    print(f"{name}: {BATCH} rows alone and together")
    session = open_built(name)
    samples = samples_for(find_model(name))
    rows = [samples[at % len(samples)] for at in range(BATCH)]
    batch = stack_rows(rows)

    def together() -> object:
        return session.run(None, batch)

    def alone() -> None:
        for row in rows:
            session.run(None, dict(row.inputs))

    ((first, second),) = in_turns(alone, together, 1)
    count = min(MOST_PAIRS, max(LEAST_PAIRS, round(SECONDS / (first + second))))
    pairs = in_turns(alone, together, count)
    ratios = [one / other for one, other in pairs]
    title = f"{name}: time per row alone / in a batch of {BATCH}, one thread"
    target = TARGETS.get(name)
    row = at_least(title, ratios, target) if target else stated(title, ratios)
    each_us = [statistics.median(side) / BATCH * 1e6 for side in zip(*pairs, strict=True)]
    return replace(row, note=f"{row.note}; {each_us[0]:,.1f} µs and {each_us[1]:,.1f} µs")


if __name__ == "__main__":
    main()
