"""A staged model is run, so that its configuration says what it does and not what it declares."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType

import numpy as np

from serving.errors import ModelError, UsageError
from serving.importing.axes import (
    GivenLengths,
    Lengths,
    Shapes,
    leading_axes,
    lengths_for,
    shapes_for,
    with_given_ranks,
)
from serving.importing.real_inputs import single_rows
from serving.models.generated import ValueRange, random_values, require_fit
from serving.models.inspection import GraphReport, GraphTensor
from serving.models.samples import Sample
from serving.protocol import ProtocolError
from serving.rows import Arrays, Run, Seen, Trial, shapes_of, try_rows

ROWS = 3
"""How many rows are tried alone and together."""
_SEED = 20_240_501


@dataclass(frozen=True)
class Wanted:
    """What the user says of batches and inputs."""

    max_batch_size: int = 8
    given: GivenLengths = field(default_factory=GivenLengths)
    ranges: Mapping[str, ValueRange] = field(default_factory=lambda: MappingProxyType({}))


@dataclass(frozen=True)
class Tried:
    """What came of it.

    Attributes:
        report: the graph's, with as many axes for every input as it was given.
        why_not_batched: empty for a model whose requests may be joined.
        trial: of rows alone and together; ``None`` where the graph rules out a batch axis.
        only_rows: the only number of rows it takes, where that is so.
        sample_shapes: of made-up inputs; empty where real ones were given.
    """

    report: GraphReport
    why_not_batched: str
    seen: Seen
    trial: Trial | None = None
    only_rows: int | None = None
    sample_shapes: Shapes = field(default_factory=dict)


def try_out(run: Run, report: GraphReport, wanted: Wanted, samples: Sequence[Sample]) -> Tried:
    """Run a model on few and on more rows, of ``samples`` where there are any.

    Raises:
        ModelError: it does not run on its inputs.
        UsageError: a length is missing, or what is given does not fit the graph.
    """
    given = wanted.given
    if samples:
        given = GivenLengths(given.axes, {**shapes_of(samples[0].inputs), **given.shapes})
    report = replace(report, inputs=with_given_ranks(report.inputs, given.shapes))
    _require_ranges(report.inputs, wanted.ranges)
    lengths = lengths_for(report.inputs, given)
    makes = _Maker(report.inputs, wanted.ranges)
    why_not, shapes = "as was asked for", shapes_for(report.inputs, lengths)
    if wanted.max_batch_size:
        one_row = makes.row_shapes(lengths, 1)
        why_not = report.why_not_batchable or _unequal(one_row)
    try:
        if why_not:
            tried = Tried(report, why_not, *_try_sizes(run, makes, lengths, samples))
        else:
            trial, shapes = try_rows(run, _rows(makes, lengths, samples)), one_row
            only = None if trial.takes_more else 1
            tried = Tried(report, trial.why_dependent, trial.seen, trial, only)
    except ProtocolError as error:
        raise ModelError(
            f"it does not run on {'the sample' if samples else 'made-up'} inputs: {error}",
            hint="Give real inputs with --sample-inputs, or bounds such as --range ids=0..99.",
        ) from None
    return tried if samples else replace(tried, sample_shapes=shapes)


def _require_ranges(inputs: Sequence[GraphTensor], ranges: Mapping[str, ValueRange]) -> None:
    datatypes = {tensor.name: tensor.datatype for tensor in inputs}
    for name, values in ranges.items():
        if name not in datatypes:
            raise UsageError(
                f"there is no input {name!r} to have a range",
                hint=f"Inputs: {', '.join(datatypes)}.",
            )
        try:
            require_fit(values, datatypes[name])
        except ValueError as error:
            raise UsageError(f"the range of {name!r} is {values}", hint=f"Give {error}.") from None


class _Maker:
    """Makes inputs up, other ones each time."""

    def __init__(self, inputs: Sequence[GraphTensor], ranges: Mapping[str, ValueRange]) -> None:
        self.inputs = inputs
        self._ranges = ranges
        self._rng = np.random.default_rng(_SEED)

    def make(self, shapes: Shapes) -> Arrays:
        return {
            tensor.name: random_values(
                tensor.datatype, shapes[tensor.name], self._rng, self._ranges.get(tensor.name)
            )
            for tensor in self.inputs
        }

    def row_axes(self, lengths: Lengths) -> list[str]:
        """Free first axes that are not computed from others."""
        return sorted(leading_axes(self.inputs) & lengths.keys())

    def row_shapes(self, lengths: Lengths, count: int) -> Shapes:
        """Shapes of ``count`` rows, whatever ``lengths`` says of them."""
        return shapes_for(self.inputs, {**lengths, **dict.fromkeys(self.row_axes(lengths), count)})

    def make_rows(self, lengths: Lengths, count: int) -> Arrays:
        return self.make(self.row_shapes(lengths, count))


def _unequal(shapes: Shapes) -> str:
    for name, shape in shapes.items():
        if shape[0] != 1:
            return f"input {name!r} has {shape[0]} rows where another has 1"
    return ""


def _rows(makes: _Maker, lengths: Lengths, samples: Sequence[Sample]) -> list[Arrays]:
    """Single rows of one shape: the user's as far as they go."""
    rows: list[Arrays] = []
    for sample in single_rows(samples):
        if not rows or shapes_of(sample.inputs) == shapes_of(rows[0]):
            rows.append(sample.inputs)
    while len(rows) < ROWS:
        rows.append(makes.make(shapes_of(rows[0])) if rows else makes.make_rows(lengths, 1))
    return rows[:ROWS]


def _try_sizes(
    run: Run, makes: _Maker, lengths: Lengths, samples: Sequence[Sample]
) -> tuple[Seen, None, int | None]:
    """The shapes for one and for more rows of a model that is not batched; does it take more?"""
    if samples:
        seen = tuple(
            (f"sample {sample.name!r}", shapes_of(run(sample.inputs))) for sample in samples[:ROWS]
        )
        return seen, None, None
    axes = makes.row_axes(lengths)
    if not axes:
        shapes = shapes_for(makes.inputs, lengths)
        return (("the shape it takes", shapes_of(run(makes.make(shapes)))),), None, None
    few = lengths[axes[0]]
    seen = ((_told(few), shapes_of(run(makes.make_rows(lengths, few)))),)
    more = few + ROWS - 1
    try:
        answer = run(makes.make_rows(lengths, more))
    except ProtocolError:
        return seen, None, few
    return (*seen, (_told(more), shapes_of(answer))), None, None


def _told(rows: int) -> str:
    return "1 row" if rows == 1 else f"{rows} rows"
