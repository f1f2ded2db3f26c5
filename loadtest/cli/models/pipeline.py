"""``infersweep models pipeline``: a model that takes pictures as cameras send them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Annotated, Any, cast, get_args

import typer
from rich.console import Console

from loadtest.cli.options import DEFAULT_REPOSITORY, RepositoryOption
from serving.deriving.pipeline import known_front, make_pipeline
from serving.errors import UsageError
from serving.fronthalf import FrontHalf, Payload
from serving.models.config import ModelConfig
from serving.models.repository import find_model

NAME = "pipeline"
EXAMPLES = (
    "Examples: `infersweep models pipeline face_detector` · "
    "`infersweep models pipeline mine --payload uint8 --mean 0 --std 255 --channels BGR`"
)


def run(
    name: Annotated[str, typer.Argument(help="the model, with one input of float32 pictures")],
    payload: Annotated[
        str, typer.Option(help=f"what is sent: {' or '.join(get_args(Payload))}")
    ] = "jpeg",
    size: Annotated[
        str, typer.Option(help="HEIGHTxWIDTH, where the model takes any [default: the model's]")
    ] = "",
    channels: Annotated[
        str, typer.Option(help="RGB, BGR or GREY [default: the zoo's, else RGB]")
    ] = "",
    mean: Annotated[
        str, typer.Option(help="of 0..255, one or one per channel [default: the zoo's]")
    ] = "",
    std: Annotated[str, typer.Option(help="likewise; a value becomes (v - mean) / std")] = "",
    fill: Annotated[
        int | None, typer.Option(help="grey of the margins [default: the zoo's, else 127]")
    ] = None,
    repository: RepositoryOption = DEFAULT_REPOSITORY,
) -> int:
    """Put a front half (decode, letterbox, normalise) before a model, as a model of its own."""
    console = Console(soft_wrap=True)
    model = find_model(name, repository)
    if payload not in get_args(Payload):
        raise UsageError(
            f"payload {payload!r} is not known", hint=f"Known: {', '.join(get_args(Payload))}."
        )
    stated: dict[str, Any] = {"channels": channels, "fill": fill}
    stated |= {"mean": _floats("--mean", mean), "std": _floats("--std", std)}
    stated |= _size(size)
    stated = {key: value for key, value in stated.items() if value not in ("", None, ())}
    front = _front_half(known_front(model, cast("Payload", payload)), stated, payload, model.config)
    made = make_pipeline(model, front, console.print)
    console.print(f"{made.name} is built", highlight=False, markup=False)
    console.print(f"Next: infersweep check --model {made.name}", highlight=False, markup=False)
    return 0


def _front_half(
    known: FrontHalf | None, stated: dict[str, Any], payload: str, config: ModelConfig
) -> FrontHalf:
    """Raises UsageError for what is stated wrongly, or not at all."""
    try:
        if known is not None:
            return replace(known, **stated)
        if not {"mean", "std"} <= stated.keys():
            raise UsageError(
                f"how the values of {config.name} are normalised is not known",
                hint="Give --mean and --std, such as --mean 0 --std 255.",
            )
        dims = config.inputs[0].dims
        if len(dims) == 3:
            stated = {"height": dims[1], "width": dims[2], **stated}
        made: Callable[..., FrontHalf] = FrontHalf
        return made(payload=payload, **stated)
    except (ValueError, TypeError) as error:
        raise UsageError(
            f"this is no front half: {error}", hint="docs/front-half.md says what can be stated."
        ) from None


def _floats(option: str, text: str) -> tuple[float, ...]:
    try:
        return tuple(float(part) for part in text.split(",")) if text else ()
    except ValueError:
        raise UsageError(f"{option} {text!r}", hint="Write 127, or 123.7,116.3,103.5.") from None


def _size(text: str) -> dict[str, int]:
    if not text:
        return {}
    height, _, width = text.partition("x")
    if not (height.isdecimal() and width.isdecimal()):
        raise UsageError(f"--size {text!r}", hint="Write HEIGHTxWIDTH, such as 480x640.")
    return {"height": int(height), "width": int(width)}
