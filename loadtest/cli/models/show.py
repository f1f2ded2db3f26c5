"""``infersweep models show``: what a model takes, gives, costs, and how it may be batched."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

import typer
from rich.console import Console

from loadtest.cli.options import DEFAULT_REPOSITORY, RepositoryOption
from loadtest.report.numbers import drop, size
from serving.arithmetic import Arithmetic, measure
from serving.errors import InfersweepError
from serving.importing.configuration import LICENCE
from serving.importing.staging import size_bytes
from serving.models.config import ModelConfig
from serving.models.inspection import inspect
from serving.models.repository import Model, find_model, list_models
from serving.models.samples import samples_for, source_of_samples
from serving.models.variants.parameters import read_record
from serving.models.zoo import ENTRIES
from serving.protocol import ProtocolError

NAME = "show"
EXAMPLES = "Example: `infersweep models show image_classifier`"
_UNITS = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))


def run(
    name: Annotated[str, typer.Argument(help="name in the model repository")],
    repository: RepositoryOption = DEFAULT_REPOSITORY,
) -> int:
    """Print tensors, size, operations per inference, batching, variants and licence."""
    model = find_model(name, repository)
    console = Console(soft_wrap=True)
    for line in (*_stated(model), *_built(model), *_relations(model)):
        console.print(line, highlight=False, markup=False)
    return 0


def _stated(model: Model) -> Iterator[str]:
    """What ``config.pbtxt`` says."""
    config, entry = model.config, ENTRIES.get(model.name)
    yield f"{model.name}: {entry.summary if entry else 'your own'}"
    for what, specs in (("input", config.inputs), ("output", config.outputs)):
        for spec in specs:
            yield f"  {what} {spec.name}: {spec.datatype} {list(config.wire_dims(spec))}"
    where = "GPU" if config.accelerator == "gpu" else "CPU"
    instances, threads = (
        _many(config.instances, "instance"),
        _many(config.intra_op_threads, "thread"),
    )
    yield f"  {instances} x {threads} on the {where}"
    yield f"  {_batching(config)}"


def _batching(config: ModelConfig) -> str:
    if not config.batched:
        return "not batched: max_batch_size is 0"
    if config.dynamic_batching is None:
        return f"requests of up to {config.max_batch_size} rows, which are not joined"
    delay_us = config.dynamic_batching.max_queue_delay_ns // 1_000
    return f"requests are joined up to {config.max_batch_size} rows, after {delay_us} µs at most"


def _built(model: Model) -> Iterator[str]:
    """What the file itself says."""
    if not model.is_built:
        yield "  not built: there is no model.onnx yet"
        return
    if model.config.front is not None:
        stated = ", ".join(f"{key} {text}" for key, text in model.config.front.parameters().items())
        yield f"  version {model.version}, {stated}"
        return
    if model.front is not None:
        for step in model.steps:
            yield f"  {step.name}:"
            yield from _built(step)
        return
    report = inspect(model.file)
    yield (
        f"  version {model.version}, {size(size_bytes(model, model.version))}, "
        f"sha256 {model.sha256()[:12]}, opset {report.opset}, IR version {report.ir_version}"
    )
    if not model.config.batched and report.why_not_batchable:
        yield f"  it cannot be: {report.why_not_batchable}"
    try:
        samples = samples_for(model)
        yield f"  {len(samples)} sample inputs, {source_of_samples(model)}"
        yield from _costs(measure(model, samples[0].inputs), model.config)
    except (InfersweepError, ProtocolError) as error:
        yield f"  operations not counted: {error}"


def _costs(found: Arithmetic, config: ModelConfig) -> Iterator[str]:
    yield (
        f"  {_prefixed(found.flops)}FLOP for the first, a multiply-add being two; "
        f"{found.counted} of {found.operators} operators are counted, {found.moving} only move data"
    )
    if found.uncounted:
        others = ", ".join(f"{kind} {number}" for kind, number in found.uncounted.items())
        yield f"  not counted: {others}"
    intensity = f"{found.intensity():.3g} FLOP per byte of weights, inputs and outputs"
    if config.max_batch_size > 1:
        rows = config.max_batch_size
        intensity += f"; {found.intensity(rows):.3g} in a batch of {rows}"
    yield f"  arithmetic intensity {intensity}"


def _relations(model: Model) -> Iterator[str]:
    own = read_record(model.config)
    if own:
        yield f"  variant of {own.of}: {own.made}, drop {drop(own)}"
    for other in list_models(model.root):
        record = read_record(other.config)
        if record and record.of == model.name:
            yield f"  variant {other.name}: {size(record.size_bytes)}, drop {drop(record)}"
    entry = ENTRIES.get(model.name)
    stated = entry.licence if entry else model.config.parameters.get(LICENCE)
    yield f"  licence: {stated or 'not stated'}"


def _many(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def _prefixed(number: float) -> str:
    for factor, prefix in _UNITS:
        if number >= factor:
            return f"{number / factor:.3g} {prefix}"
    return f"{number:.3g} "
