"""Add a user's model to a repository: take, run, configure, compare, move in."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path

from serving.errors import ModelError
from serving.importing.configuration import Plan, configuration
from serving.importing.declarations import as_inferred, corrections, describe_corrections
from serving.importing.real_inputs import read_samples, single_rows, store
from serving.importing.remarks import about_batches, about_datatypes, about_file, about_inputs
from serving.importing.request import Produced, Request
from serving.importing.staging import (
    FIRST_VERSION,
    publish,
    publish_version,
    size_bytes,
    staging,
)
from serving.importing.taking import Taken, correct_shapes, take_graph
from serving.importing.trying import Tried, Wanted, try_out
from serving.models.inspection import GraphReport, differences, inspect
from serving.models.repository import Model
from serving.models.samples import Sample, samples_for
from serving.rows import Run, equal_within
from serving.session import Session, open_session

CONFIG_FILE = "config.pbtxt"


@dataclass(frozen=True)
class Added:
    """Attributes: ``remarks`` say what was done and what could not be, a line each."""

    model: Model
    version: int
    size_bytes: int
    remarks: tuple[str, ...]


def add(request: Request, root: Path) -> Added:
    """Add a model, or a version of one, to the repository at ``root``; all of it or nothing.

    Raises:
        ModelError: the model cannot be served; the reason and the mend are told.
        UsageError: something must be given with it, or does not fit it.
        MachineError: the disk is full.
    """
    place = request.place_in(root)
    with staging(root, place.name) as staged:
        produced = request.source.produce(staged.root, request.examples)
        taken = take_graph(produced.file, staged.file_of(FIRST_VERSION), request.source.label)
        remarks = [*produced.remarks, *about_file(taken, own=produced.original is None)]
        if request.next_version:
            remarks += _ready_version(request, staged, place, produced)
            size = size_bytes(staged, FIRST_VERSION)
            return Added(place, publish_version(staged, root), size, tuple(remarks))
        remarks += _ready_model(request, staged, taken, produced)
        size = size_bytes(staged, FIRST_VERSION)
        return Added(publish(staged, root), FIRST_VERSION, size, tuple(remarks))


def _ready_model(request: Request, staged: Model, taken: Taken, produced: Produced) -> list[str]:
    """Run a new model and write what belongs beside it; returns remarks."""
    label = request.source.label
    samples = read_samples(request.samples, taken.report.inputs) if request.samples else ()
    _write(staged, Plan(staged.name, taken.report, 0))
    with closing(_open(staged, label)) as session:
        report = as_inferred(taken.report, session.inferred)
        tried = _try(session.run, report, request.wanted, samples, label)
        report, corrected = _correct(staged, taken.report, tried)
        plan = Plan(
            name=staged.name,
            report=report,
            max_batch_size=0 if tried.why_not_batched else request.wanted.max_batch_size,
            rows=tried.only_rows,
            sample_shapes=tried.sample_shapes,
            ranges=request.wanted.ranges,
            licence=request.licence or taken.licence,
        )
        batches = list(about_batches(tried, taken, plan))
        made = f"Made by `infersweep models add` from {label}; yours to edit."
        _write(staged, replace(plan, remarks=[made, *batches]))
        if samples:
            samples = single_rows(samples) if plan.max_batch_size else samples
            store(samples, staged)
        return [
            *corrected,
            *batches,
            *about_datatypes(taken),
            about_inputs(plan, len(samples)),
            "1 instance x 1 thread on the CPU",
            *_compared(produced, session.run, samples_for(Model(staged.root, staged.name)), label),
        ]


def _ready_version(request: Request, staged: Model, place: Model, produced: Produced) -> list[str]:
    """See that a new version does what the model's own configuration says; returns remarks."""
    label = request.source.label
    report = inspect(staged.file)
    found = differences(report, place.config)
    if found:
        raise ModelError(
            f"{label} does not fit {place.folder / CONFIG_FILE}: {'; '.join(found)}",
            hint="Add it under another --name.",
        )
    shutil.copyfile(place.folder / CONFIG_FILE, staged.folder / CONFIG_FILE)
    samples = samples_for(place)
    wanted = Wanted(place.config.max_batch_size)
    with closing(_open(staged, label)) as session:
        tried = _try(session.run, report, wanted, samples, label)
        if place.config.batched and tried.why_not_batched:
            raise ModelError(
                f"{label} cannot be batched, and {place.folder / CONFIG_FILE} says "
                f"{place.config.max_batch_size}: {tried.why_not_batched}",
                hint="Add it under another --name.",
            )
        kept = f"its {CONFIG_FILE} and sample inputs are kept, and it does what they say"
        return [kept, *_compared(produced, session.run, samples, label)]


def _open(staged: Model, label: str) -> Session:
    """A session as servers open it."""
    try:
        return open_session(staged, packed=False)
    except ModelError as error:
        what = error.what.replace(str(staged.file), label)
        raise ModelError(
            what, hint="It may have to be exported in another datatype, or with other operators."
        ) from None


def _try(
    run: Run, report: GraphReport, wanted: Wanted, samples: Sequence[Sample], label: str
) -> Tried:
    try:
        return try_out(run, report, wanted, samples)
    except ModelError as error:
        raise ModelError(f"{label}: {error.what}", hint=error.hint) from None


def _correct(staged: Model, declared: GraphReport, tried: Tried) -> tuple[GraphReport, list[str]]:
    """Mend shapes that are missing or wrong in the file; how it is now, and what was done."""
    outputs = tried.report.outputs
    wrong = corrections(outputs, tried.seen)
    unknown = {
        known.name: known.dims
        for known, tensor in zip(tried.report.inputs, declared.inputs, strict=True)
        if tensor.dims is None and known.dims is not None
    }
    if not wrong and not unknown:
        return tried.report, []
    correct_shapes(staged.file, {**wrong, **unknown})
    with closing(open_session(staged, packed=False)) as session:
        report = as_inferred(inspect(staged.file), session.inferred)
    return report, describe_corrections(outputs, wrong, tried.seen)


def _compared(produced: Produced, run: Run, samples: Sequence[Sample], label: str) -> Iterator[str]:
    """Answers beside those of the model that the file was made from.

    Raises:
        ModelError: they differ.
    """
    if produced.original is None:
        return
    largest, unknown = 0.0, set[str]()
    for sample in samples:
        answers = run(sample.inputs)
        originals = produced.original(sample.inputs)
        unknown |= answers.keys() - originals.keys()
        for name, wanted in originals.items():
            equal, difference = equal_within(answers[name], wanted)
            largest = max(largest, difference)
            if not equal:
                raise ModelError(
                    f"{label}: as ONNX its output {name!r} is off by {difference:.2g} for input "
                    f"{sample.name!r}",
                    hint="Export it with another opset or exporter, and give the file.",
                )
    yield f"answers as the original on {len(samples)} inputs (largest difference {largest:.2g})"
    if unknown:
        yield f"not compared, since the original has no such output: {', '.join(sorted(unknown))}"


def _write(model: Model, plan: Plan) -> None:
    (model.folder / CONFIG_FILE).write_text(configuration(plan), encoding="utf-8")
