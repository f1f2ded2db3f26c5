"""Rules for ensembles: every tensor written once and read, every step known and fitting."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from tritonclient.grpc import model_config_pb2 as schema

from serving.linting.document import Document, Documents, Finding
from serving.models.pipeline import pipeline_of, states_front_half
from serving.models.scheduling import datatype_name

_NEWEST = -1
_STEP = ("ensemble_scheduling", 0, "step")
Tensor: TypeAlias = schema.ModelInput | schema.ModelOutput


@dataclass(frozen=True)
class _End:
    """Where a tensor of an ensemble is written or read.

    Attributes:
        who: for messages, such as ``step 2 (classifier)``.
        tensor: as that model declares it; ``None`` where the model is not known.
        batch: that model's ``max_batch_size``.
        steps: the way to the place in the file.
    """

    who: str
    tensor: Tensor | None
    batch: int
    steps: tuple[str | int, ...]

    @property
    def shape(self) -> tuple[int, ...]:
        """As it travels."""
        dims = tuple(self.tensor.dims) if self.tensor else ()
        return (-1, *dims) if self.batch > 0 else dims


@dataclass
class _Wiring:
    """Who writes and who reads each tensor, by its name."""

    writers: dict[str, list[_End]] = field(default_factory=dict)
    readers: dict[str, list[_End]] = field(default_factory=dict)


def check_ensemble(document: Document, documents: Documents) -> Iterator[Finding]:
    """What is wrong with an ensemble among the models of its repository."""
    message = document.message
    for name in ("instance_group", "dynamic_batching"):
        if name in document.root.fields:
            yield document.error(
                f"an ensemble has no {name} of its own", "Take it out; write it at the steps.", name
            )
    if not message.ensemble_scheduling.step:
        yield document.error("the ensemble has no step", "Write one.", "ensemble_scheduling")
    # That of a pipeline is made by `models build`, as the file of a model is.
    if not _version_folders(document) and not _is_pipeline(message, documents):
        yield document.error(
            "the ensemble has no version folder", f"Make an empty {document.model.folder / '1'}."
        )
    wiring = _Wiring()
    _add_ends(wiring, document)
    for index, step in enumerate(message.ensemble_scheduling.step):
        yield from _check_step(document, documents, index, step, wiring)
    yield from _check_wiring(document, wiring)
    if wiring.readers.keys() <= wiring.writers.keys():
        yield from _check_order(document)


def _is_pipeline(message: schema.ModelConfig, documents: Documents) -> bool:
    pipeline = pipeline_of(message)
    front = documents.get(pipeline.front) if pipeline else None
    return front is not None and states_front_half(front.message)


def _version_folders(document: Document) -> list[str]:
    return [p.name for p in document.model.folder.iterdir() if p.is_dir() and p.name.isdecimal()]


def _add_ends(wiring: _Wiring, document: Document) -> None:
    """The ensemble's inputs are written from outside, its outputs are read there."""
    batch = document.message.max_batch_size
    for kind, tensors, side in (
        ("input", document.message.input, wiring.writers),
        ("output", document.message.output, wiring.readers),
    ):
        for index, tensor in enumerate(tensors):
            end = _End(f"the ensemble's {kind}", tensor, batch, (kind, index))
            side.setdefault(tensor.name, []).append(end)


def _check_step(
    document: Document,
    documents: Documents,
    index: int,
    step: schema.ModelEnsembling.Step,
    wiring: _Wiring,
) -> Iterator[Finding]:
    where = (*_STEP, index)
    who = f"step {index + 1} ({step.model_name})"
    other = documents.get(step.model_name)
    if other is document:
        yield document.error(f"{who} is the ensemble itself", "Name another.", *where, "model_name")
        other = None
    elif other is None:
        near = difflib.get_close_matches(step.model_name, documents, n=1)
        yield document.error(
            f"{who}: there is no such model in the repository",
            f"Did you mean {near[0]}?" if near else f"There are: {', '.join(documents)}.",
            *where,
            "model_name",
        )
    else:
        yield from _check_model(document, other, who, where, step)
    for kind, mapped, side in (
        ("input", step.input_map, wiring.readers),
        ("output", step.output_map, wiring.writers),
    ):
        tensors = _tensors(other, kind)
        for key, name in mapped.items():
            at = (*where, *_entry(document, where, f"{kind}_map", key))
            if other is not None and key not in tensors:
                yield document.error(
                    f"{who}: {kind}_map names {key!r}, which the model does not have",
                    f"Its {kind}s: {', '.join(tensors)}.",
                    *at,
                )
            batch = other.message.max_batch_size if other else 0
            side.setdefault(name, []).append(_End(who, tensors.get(key), batch, at))
        missing = [name for name in tensors if name not in mapped]
        if kind == "input" and missing:
            yield document.error(
                f"{who}: nothing goes to its input {missing[0]!r}", "Map it.", *where
            )


def _check_model(
    document: Document,
    other: Document,
    who: str,
    where: tuple[str | int, ...],
    step: schema.ModelEnsembling.Step,
) -> Iterator[Finding]:
    own, limit = document.message.max_batch_size, other.message.max_batch_size
    if own > limit:
        yield document.error(
            f"max_batch_size {own} is more than the {limit} of {who}",
            "An ensemble takes no more rows than each of its steps.",
            "max_batch_size",
        )
    folders = _version_folders(other)
    if step.model_version != _NEWEST and str(step.model_version) not in folders:
        stated = "not written" if not step.model_version else str(step.model_version)
        yield document.error(
            f"{who}: model_version is {stated}, and there is no such version",
            f"Write {_NEWEST} for the newest; there are: {', '.join(folders) or 'none'}.",
            *where,
        )


def _check_wiring(document: Document, wiring: _Wiring) -> Iterator[Finding]:
    for name, readers in wiring.readers.items():
        writers = wiring.writers.get(name, [])
        if not writers:
            yield document.error(
                f"tensor {name!r} to {readers[0].who} is never written",
                f"Written are: {', '.join(wiring.writers)}.",
                *readers[0].steps,
            )
        for reader in readers:
            for writer in writers[:1]:
                yield from _check_fit(document, name, writer, reader)
    for name, writers in wiring.writers.items():
        if len(writers) > 1:
            yield document.error(
                f"tensor {name!r} comes from {writers[0].who} and from {writers[1].who}",
                "Give each its own name.",
                *writers[1].steps,
            )
        if name not in wiring.readers:
            yield document.error(
                f"tensor {name!r} from {writers[0].who} is never read",
                "Take it out, or make it an output of the ensemble.",
                *writers[0].steps,
            )


def _check_fit(document: Document, name: str, writer: _End, reader: _End) -> Iterator[Finding]:
    if writer.tensor is None or reader.tensor is None:
        return
    kinds = datatype_name(writer.tensor.data_type), datatype_name(reader.tensor.data_type)
    if kinds[0] != kinds[1]:
        yield document.error(
            f"tensor {name!r} is {kinds[0]} from {writer.who} and {kinds[1]} to {reader.who}",
            "Declare one datatype, or put a step between that converts.",
            *reader.steps,
        )
    fits = len(writer.shape) == len(reader.shape) and all(
        -1 in (one, other) or one == other
        for one, other in zip(writer.shape, reader.shape, strict=True)
    )
    if not fits:
        yield document.error(
            f"tensor {name!r} has shape {list(writer.shape)} from {writer.who} and "
            f"{list(reader.shape)} to {reader.who}",
            "Declare one shape.",
            *reader.steps,
        )


def _check_order(document: Document) -> Iterator[Finding]:
    """Every tensor has a writer; is there an order in which the steps can run?"""
    written = {tensor.name for tensor in document.message.input}
    waiting = dict(enumerate(document.message.ensemble_scheduling.step))
    while ready := [
        n for n, step in waiting.items() if written.issuperset(step.input_map.values())
    ]:
        for number in ready:
            written.update(waiting.pop(number).output_map.values())
    if waiting:
        names = ", ".join(f"{number + 1} ({step.model_name})" for number, step in waiting.items())
        yield document.error(
            f"steps {names} wait for each other", "Take the circle out.", *_STEP, min(waiting)
        )


def _tensors(document: Document | None, kind: str) -> Mapping[str, Tensor]:
    if document is None:
        return {}
    declared = document.message.input if kind == "input" else document.message.output
    return {tensor.name: tensor for tensor in declared}


def _entry(
    document: Document, where: tuple[str | int, ...], name: str, key: str
) -> tuple[str | int, ...]:
    """The way from a step to the entry of a map that has ``key``; maps have no order of theirs."""
    entries = document.root.find(*where).fields.get(name, [])
    for index, entry in enumerate(entries):
        if any(node.text == key for node in entry.fields.get("key", [])):
            return name, index
    return ()
