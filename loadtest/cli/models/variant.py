"""``infersweep models variant``: a smaller or faster sibling of a model, and what it costs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from loadtest.cli.options import DEFAULT_REPOSITORY, RepositoryOption, interrupt_on_sigterm
from loadtest.report.numbers import drop, size
from serving.deriving.derive import Derived, Limits, derive
from serving.errors import UsageError
from serving.importing.real_inputs import read_samples, single_rows
from serving.models.inspection import inspect
from serving.models.repository import Model, find_model
from serving.models.variants.kind import Kind, Order
from serving.models.variants.registry import KINDS, resolve_kind
from serving.models.zoo.build import ensure_built

NAME = "variant"
EXAMPLES = (
    "Examples: `infersweep models variant image_classifier --kind int8-static --max-drop 0.15` · "
    "`infersweep models variant image_classifier --kind pruned --ratio 0.25 --keep-anyway` · "
    "`infersweep models variant mine --kind qat --from mine-qat.onnx`"
)
_OPTIONS = {
    "calibration": "--calibration",
    "ratio": "--ratio",
    "brought": "--from",
    "workspace_bytes": "--workspace-bytes",
}
"""By the attribute of ``Order`` that each states."""


def run(
    name: Annotated[str, typer.Argument(help="the parent, a model of the repository")],
    kind: Annotated[str, typer.Option(help=f"one of {', '.join(KINDS)}")],
    max_drop: Annotated[
        float, typer.Option(min=0, max=1, help="largest accuracy drop that is kept")
    ] = 0.05,
    keep_anyway: Annotated[
        bool, typer.Option("--keep-anyway", help="keep it whatever speaks against it")
    ] = False,
    calibration: Annotated[
        Path | None, typer.Option(help="real inputs, .npz or a folder [default: the model's own]")
    ] = None,
    ratio: Annotated[
        float | None, typer.Option(help="share of channels that pruned removes [default: 0.25]")
    ] = None,
    brought: Annotated[Path | None, typer.Option("--from", help="your own file, for qat")] = None,
    workspace_bytes: Annotated[
        int | None, typer.Option(min=1, help="most memory that building an engine may take")
    ] = None,
    repository: RepositoryOption = DEFAULT_REPOSITORY,
) -> int:
    """Make NAME-KIND beside the model and measure on real inputs what it costs in accuracy."""
    console = Console(soft_wrap=True)
    chosen, parent = resolve_kind(kind), find_model(name, repository)
    stated = {
        "calibration": calibration,
        "ratio": ratio,
        "brought": brought,
        "workspace_bytes": workspace_bytes,
    }
    with interrupt_on_sigterm():
        ensure_built(parent, console.print)
        order = _order(chosen, parent, {key: v for key, v in stated.items() if v is not None})
        derived = derive(order, chosen, Limits(max_drop, keep_anyway), console.print)
    for line in (*_lines(derived), f"Next: infersweep compare --model {derived.model.name}"):
        console.print(line, highlight=False, markup=False)
    return 0


def _order(kind: Kind, parent: Model, stated: dict[str, Any]) -> Order:
    """What was stated, as the kind reads it.

    Raises:
        UsageError: the kind does not read an option that was given.
        ModelError: the calibration inputs do not fit the model.
    """
    unread = [_OPTIONS[key] for key in stated if key not in kind.reads]
    if unread:
        known = [_OPTIONS[key] for key in _OPTIONS if key in kind.reads]
        raise UsageError(
            f"kind {kind.name} does not read {unread[0]}",
            hint=f"It reads {', '.join(known) or 'no option of its own'}.",
        )
    order = Order(parent)
    if "calibration" in stated:
        path = stated.pop("calibration")
        samples = read_samples(path, inspect(parent.file).inputs)
        samples = single_rows(samples) if parent.config.batched else samples
        order = Order(parent, samples, f"{len(samples)} inputs of {path.name}")
    return replace(order, **stated)


def _lines(derived: Derived) -> Iterator[str]:
    record = derived.record
    yield f"{derived.model.name}: {record.made}"
    yield f"  size {size(record.size_bytes)}, the parent's {size(record.parent_size_bytes)}"
    yield f"  against {record.of} on {record.inputs} inputs ({record.inputs_source}):"
    yield f"  drop {drop(record)} ({record.measure}), cosine {record.cosine:.5f}"
    yield (
        f"  difference {record.largest_difference:.3g} at most, {record.mean_difference:.3g} on "
        "average"
    )
    yield f"  time for one input {derived.time_ratio:.2f} of the parent's, seen in passing"
    yield from (f"  note: {note}" for note in derived.notes)
