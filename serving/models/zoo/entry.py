"""What a model of the zoo must tell about itself."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from serving.fronthalf import FrontHalf
from serving.models.weights import PackagedFile
from serving.protocol import Array

if TYPE_CHECKING:
    from torch import nn


@dataclass(frozen=True)
class ZooEntry:
    """One shipped model.

    Attributes:
        build: writes ``model.onnx`` (second argument) from the weight file (first).
        samples: real inputs by name; every array has a leading batch axis of length 1.
        fault: what is wrong with the outputs for the named sample; ``None`` when right.
        torch_module: the same network for PyTorch eager, in eval mode; ``None`` where the model
            exists as ONNX only.
        front: how a picture becomes its input, for its pipelines; ``None`` where it takes none.
    """

    name: str
    summary: str
    licence: str
    weights: PackagedFile
    build: Callable[[Path, Path], None]
    samples: Callable[[], Mapping[str, Mapping[str, Array]]]
    fault: Callable[[str, Mapping[str, Array]], str | None]
    torch_module: Callable[[Path], nn.Module] | None = None
    front: FrontHalf | None = None
