"""Shape ranges for TensorRT: the smallest, best and largest shape of every input.

An engine is built for a range of shapes. Without one, ONNX Runtime builds a new engine whenever a
request leaves the shapes seen so far, inside that request's latency. Either all three of
``trt_profile_min_shapes``, ``..._opt_shapes`` and ``..._max_shapes`` cover all inputs of variable
shape, or none is given and the range follows from ``max_batch_size``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from serving.errors import ModelError
from serving.models.config import ModelConfig

Shapes = dict[str, tuple[int, ...]]

OPTIONS = ("trt_profile_min_shapes", "trt_profile_opt_shapes", "trt_profile_max_shapes")
_SHAPE = re.compile(r"(?P<name>[^,]+):(?P<shape>\d+(?:x\d+)*)")


def shape_ranges(config: ModelConfig, options: Mapping[str, str]) -> dict[str, str]:
    """The three options, stated; empty when every input has one shape only.

    Raises:
        ModelError: some of the three are missing, or an input of variable shape is.
    """
    given = [key for key in OPTIONS if key in options]
    if not given:
        return _from_batch_size(config)
    if len(given) < len(OPTIONS):
        absent = [key for key in OPTIONS if key not in options]
        raise ModelError(
            f"model {config.name!r} gives {', '.join(given)} without {', '.join(absent)}",
            hint="TensorRT needs the smallest, the best and the largest shape together.",
        )
    ranges = [_parse(config, key, options[key]) for key in OPTIONS]
    for key, shapes in zip(OPTIONS, ranges, strict=True):
        lacking = sorted(_variable(config) - shapes.keys())
        if lacking:
            raise ModelError(
                f"model {config.name!r}: {key} has no shape for {', '.join(lacking)}",
                hint="Every input of variable shape needs one in all three.",
            )
    for name in ranges[0]:
        least, best, most = (shapes.get(name, ()) for shapes in ranges)
        if not (len(least) == len(best) == len(most)) or not all(
            a <= b <= c for a, b, c in zip(least, best, most, strict=True)
        ):
            raise ModelError(
                f"model {config.name!r}: the shapes of {name!r} are {least}, {best} and {most}",
                hint="Write smallest <= best <= largest on every axis.",
            )
    return {key: options[key] for key in OPTIONS}


def best_shapes(config: ModelConfig, ranges: Mapping[str, str]) -> Shapes:
    """A shape for every input that the engine was built for."""
    shapes = {spec.name: config.wire_dims(spec) for spec in config.inputs}
    return shapes | (_parse(config, OPTIONS[1], ranges[OPTIONS[1]]) if ranges else {})


def _variable(config: ModelConfig) -> set[str]:
    return {spec.name for spec in config.inputs if -1 in config.wire_dims(spec)}


def _from_batch_size(config: ModelConfig) -> dict[str, str]:
    free = sorted(spec.name for spec in config.inputs if -1 in spec.dims)
    if free:
        raise ModelError(
            f"model {config.name!r} runs on TensorRT, and {', '.join(free)} has a free axis",
            hint=f"State its range in the accelerator's parameters: {', '.join(OPTIONS)}.",
        )
    if not config.batched:
        return {}
    preferred = config.dynamic_batching.preferred_batch_sizes if config.dynamic_batching else ()
    rows = (1, max(preferred, default=config.max_batch_size), config.max_batch_size)
    return {
        key: ",".join(
            f"{spec.name}:{'x'.join(str(length) for length in (count, *spec.dims))}"
            for spec in config.inputs
        )
        for key, count in zip(OPTIONS, rows, strict=True)
    }


def _parse(config: ModelConfig, key: str, text: str) -> Shapes:
    parts = [_SHAPE.fullmatch(part.strip()) for part in text.split(",")]
    if not all(parts):
        raise ModelError(
            f"model {config.name!r}: {key} is {text!r}",
            hint="Write name:1x3x224x224, with a comma between inputs.",
        )
    return {
        part["name"]: tuple(int(length) for length in part["shape"].split("x"))
        for part in parts
        if part
    }
