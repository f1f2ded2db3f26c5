"""``infersweep models add``: a user's own model, inspected, tried and put into the repository."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from loadtest.cli.options import DEFAULT_REPOSITORY, RepositoryOption, interrupt_on_sigterm
from loadtest.report.numbers import size
from serving.errors import UsageError
from serving.importing import (
    Added,
    GivenLengths,
    OnnxFile,
    Request,
    SklearnFile,
    Source,
    TorchModule,
    TorchScriptFile,
    Wanted,
    add,
)
from serving.models.generated import ValueRange, parse_range

NAME = "add"
EXAMPLES = (
    "Examples: `infersweep models add resnet.onnx` · "
    "`infersweep models add bert.onnx --axis seq=128 --range ids=0..30521` · "
    "`infersweep models add --torch mypackage.nets:build --input-shape image=1,3,224,224`"
)


def run(
    path: Annotated[
        Path | None,
        typer.Argument(help="an ONNX file, a TorchScript file, or a pickled scikit-learn pipeline"),
    ] = None,
    torch: Annotated[
        str, typer.Option(help="module:factory that makes a PyTorch module, in place of a file")
    ] = "",
    name: Annotated[str, typer.Option(help="in the repository; the file's when not given")] = "",
    max_batch_size: Annotated[
        int, typer.Option(min=0, help="where rows are independent; 0 joins no requests")
    ] = 8,
    input_shape: Annotated[
        list[str] | None,
        typer.Option(help="name=1,3,480,640 with the batch axis; may be repeated"),
    ] = None,
    axis: Annotated[
        list[str] | None, typer.Option(help="seq=128: the length of a free axis; may be repeated")
    ] = None,
    value_range: Annotated[
        list[str] | None,
        typer.Option("--range", help="ids=0..99: bounds of made-up values; may be repeated"),
    ] = None,
    sample_inputs: Annotated[
        Path | None, typer.Option(help="real inputs: an .npz file, or a folder of such")
    ] = None,
    licence: Annotated[str, typer.Option(help="of the model, kept in its config.pbtxt")] = "",
    as_next_version: Annotated[
        bool, typer.Option("--as-next-version", help="of the model that has this name already")
    ] = False,
    repository: RepositoryOption = DEFAULT_REPOSITORY,
) -> int:
    """Check a model, try it, and write its config.pbtxt; tell what was done and what could not."""
    shapes = {key: _shape(text) for key, text in _pairs(input_shape, "--input-shape").items()}
    lengths = {key: _length(text, "--axis") for key, text in _pairs(axis, "--axis").items()}
    ranges = {key: _range(text) for key, text in _pairs(value_range, "--range").items()}
    request = Request(
        source=_source(path, torch),
        name=name,
        wanted=Wanted(max_batch_size, GivenLengths(lengths, shapes), ranges),
        samples=sample_inputs,
        licence=licence,
        next_version=as_next_version,
    )
    with interrupt_on_sigterm():
        added = add(request, repository)
    for line in _lines(added):
        Console(soft_wrap=True).print(line, highlight=False, markup=False)
    return 0


def _lines(added: Added) -> Iterator[str]:
    config = added.model.config
    yield f"{config.name}: version {added.version}, {size(added.size_bytes)}"
    for what, specs in (("input", config.inputs), ("output", config.outputs)):
        for spec in specs:
            yield f"  {what} {spec.name}: {spec.datatype} {list(config.wire_dims(spec))}"
    yield from (f"  {remark}" for remark in added.remarks)
    root = added.model.root
    elsewhere = "" if root == DEFAULT_REPOSITORY else f" --repository {root}"
    yield f"Next: infersweep check --model {config.name}{elsewhere}"


def _source(path: Path | None, torch: str) -> Source:
    """The kind of model that a file's name or ``--torch`` says."""
    if torch and path is None:
        return TorchModule(torch)
    if path is None or torch:
        raise UsageError(
            "there must be a file or --torch, and not both",
            hint="Write for example `infersweep models add net.onnx`.",
        )
    if path.suffix in (".pt", ".pth", ".ts", ".torchscript"):
        return TorchScriptFile(path)
    if path.suffix in (".joblib", ".pkl", ".pickle"):
        return SklearnFile(path)
    return OnnxFile(path)


def _pairs(items: Sequence[str] | None, option: str) -> dict[str, str]:
    """``NAME=VALUE`` items; a name may hold an equals sign, a value here has none."""
    found: dict[str, str] = {}
    for item in items or ():
        name, equals, value = item.rpartition("=")
        if not name or not equals or name in found:
            raise UsageError(f"{option} {item!r}", hint="Write NAME=VALUE, each name once.")
        found[name] = value
    return found


def _shape(text: str) -> tuple[int, ...]:
    return tuple(_length(part, "--input-shape") for part in text.split(","))


def _length(text: str, option: str) -> int:
    if not text.strip().isdecimal() or int(text) < 1:
        raise UsageError(f"{option}: {text!r} is no length", hint="Give whole numbers above 0.")
    return int(text)


def _range(text: str) -> ValueRange:
    try:
        return parse_range(text)
    except ValueError as error:
        raise UsageError(f"--range: {text!r}", hint=f"Write {error}.") from None
