"""What a kind of variant is: a function from a parent's file to another file."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import onnx
from tritonclient.grpc import model_config_pb2 as schema

from serving.models.execution import Execution
from serving.models.repository import Model
from serving.models.samples import Sample

_INLINE_LIMIT_BYTES = 1_500_000_000
"""Beside the file: protobuf ends at 2 GiB."""


@dataclass(frozen=True)
class Order:
    """What a variant is to be made from. A kind reads what it needs and no more.

    Attributes:
        calibration: real inputs, one row each.
        calibration_source: where these came from, in words.
        ratio: the share of channels to remove, between 0 and 1.
        brought: a file that somebody made from the same network.
        workspace_bytes: what building an engine may take on the device; 0 for no limit.
    """

    parent: Model
    calibration: tuple[Sample, ...] = ()
    calibration_source: str = ""
    ratio: float = 0.25
    brought: Path | None = None
    workspace_bytes: int = 0


def _as_it_was(_message: schema.ModelConfig, _order: Order) -> None:
    """The configuration needs no change."""


def _no_objection(_file: Path, _execution: Execution, _time_ratio: float) -> str:
    return ""


@dataclass(frozen=True)
class Kind:
    """One way to make a variant.

    Attributes:
        reads: the attributes of ``Order`` that a user may state for it.
        make: writes the model file at a path and returns what it did, in words. May raise whatever
            its tools raise.
        configure: changes the parent's configuration to the variant's.
        objection: why the file is of no use on this execution, where it takes ``time_ratio`` times
            its parent's time; empty when it is.
    """

    name: str
    make: Callable[[Order, Path], str]
    reads: frozenset[str] = frozenset()
    configure: Callable[[schema.ModelConfig, Order], None] = _as_it_was
    objection: Callable[[Path, Execution, float], str] = _no_objection


def save(model: onnx.ModelProto, target: Path) -> None:
    """Write ``model``, with its weights beside it where one file could not hold them."""
    beside = model.ByteSize() > _INLINE_LIMIT_BYTES
    onnx.save(model, target, save_as_external_data=beside, location=f"{target.name}.data")
