"""Odd models, as users have them: what becomes of each when it is added to a repository.

Most are written in ONNX's own text form (https://onnx.ai/onnx/repo-docs/Syntax.html).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, parser

from serving.errors import InfersweepError, ModelError
from serving.importing import GivenLengths, OnnxFile, Request, Wanted
from serving.models.generated import ValueRange

RELU = "g (float[batch,4] x) => (float[batch,4] y) { y = Relu(x) }"
HEAD = '<ir_version: 8, opset_import: ["" : 17, "ai.onnx.ml" : 3, "com.microsoft" : 1]>'
Build = Callable[[Path], Path]
"""Writes a model, and what it needs, into a folder; returns the model's path."""


@dataclass(frozen=True)
class Odd:
    """Attributes: ``axes``, ``shapes``, ``ranges`` and ``max_batch_size`` are what a user gives."""

    name: str
    build: Build
    axes: Mapping[str, int] = field(default_factory=dict)
    shapes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    ranges: Mapping[str, ValueRange] = field(default_factory=dict)
    max_batch_size: int = 8

    def request(self, folder: Path) -> Request:
        """To add the model, which is made in ``folder``."""
        given = GivenLengths(self.axes, self.shapes)
        wanted = Wanted(self.max_batch_size, given, self.ranges)
        return Request(OnnxFile(self.build(folder)), name=self.name, wanted=wanted)


@dataclass(frozen=True, kw_only=True)
class Accepted(Odd):
    """Attributes: ``batch`` and ``dims`` (inputs, then outputs) stand in ``config.pbtxt``."""

    batch: int
    dims: tuple[tuple[int, ...], ...]
    told: str = ""


@dataclass(frozen=True, kw_only=True)
class Refused(Odd):
    told: str
    error: type[InfersweepError] = ModelError


def text(graph: str, head: str = HEAD) -> Build:
    """The model that is written as ``graph``."""

    def build(folder: Path) -> Path:
        path = folder / "model.onnx"
        onnx.save(parser.parse_model(f"{head}\n{graph}"), path)
        return path

    return build


def listed_weights(folder: Path) -> Path:
    """As old exporters write: the weight is an input too, which IR version 3 demands."""
    graph = "g (float[batch,4] x) => (float[batch,4] y) <float[4] w = {1,2,3,4}> { y = Mul(x, w) }"
    model = parser.parse_model(f'<ir_version: 3, opset_import: ["" : 7]>\n{graph}')
    model.graph.input.append(helper.make_tensor_value_info("w", TensorProto.FLOAT, [4]))
    onnx.save(model, folder / "old.onnx")
    return folder / "old.onnx"


def external(*locations: str, given: str = "") -> Build:
    """Products of 64x64 matrices, one in each weight file; files are written below the folder.

    ``given`` stands in the model in place of the only location.
    """

    def build(folder: Path) -> Path:
        rng = np.random.default_rng(5)
        nodes, weights, last = [], [], "x"
        for number, location in enumerate(locations):
            array = rng.standard_normal((64, 64)).astype(np.float32) / 8
            path = folder / location
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(array.tobytes())
            weight = TensorProto(name=f"w{number}", data_type=TensorProto.FLOAT, dims=[64, 64])
            weight.data_location = TensorProto.EXTERNAL
            entries = {"location": given or location, "offset": "0", "length": str(array.nbytes)}
            for key, value in entries.items():
                weight.external_data.add(key=key, value=value)
            weights.append(weight)
            nodes.append(helper.make_node("MatMul", [last, weight.name], [f"y{number}"]))
            last = f"y{number}"
        graph = helper.make_graph(
            nodes,
            "products",
            [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 64])],
            [helper.make_tensor_value_info(last, TensorProto.FLOAT, ["batch", 64])],
            weights,
        )
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
        (folder / "net.onnx").write_bytes(model.SerializeToString())
        return folder / "net.onnx"

    return build


def then(build: Build, change: Callable[[Path], object]) -> Build:
    """``build``, and ``change`` done to its folder."""

    def changed(folder: Path) -> Path:
        path = build(folder)
        change(folder)
        return path

    return changed


def linked_out(folder: Path) -> None:
    """The weight file becomes a link to one outside the folder."""
    outside = folder.parent / f"{folder.name}-outside.bin"
    (folder / "w.bin").rename(outside)
    (folder / "w.bin").symlink_to(outside)


def linked_inside(folder: Path) -> None:
    (folder / "w.bin").rename(folder / "blob")
    (folder / "w.bin").symlink_to("blob")


def hard_linked(folder: Path) -> None:
    outside = folder.parent / f"{folder.name}-twin.bin"
    os.link(folder / "w.bin", outside)


def cut(name: str, size_bytes: int) -> Callable[[Path], object]:
    return lambda folder: os.truncate(folder / name, size_bytes)


def edited(graph: str, edit: Callable[[onnx.ModelProto], object]) -> Build:
    """The model of ``graph`` after ``edit``, which may be something that text cannot say."""

    def build(folder: Path) -> Path:
        model = parser.parse_model(f"{HEAD}\n{graph}")
        edit(model)
        onnx.save(model, folder / "model.onnx")
        return folder / "model.onnx"

    return build


def plain_file(content: bytes) -> Build:
    def build(folder: Path) -> Path:
        (folder / "model.onnx").write_bytes(content)
        return folder / "model.onnx"

    return build


def identities(kinds: Sequence[str], names: tuple[str, ...] = ()) -> str:
    """Every input given back, one of each kind."""
    pairs = [(kind, names[at] if names else f"x_{kind}") for at, kind in enumerate(kinds)]
    given = ", ".join(f'{kind}[batch,2] "{name}"' for kind, name in pairs)
    back = ", ".join(f'{kind}[batch,2] "{name} back"' for kind, name in pairs)
    nodes = " ".join(f'"{name} back" = Identity("{name}")' for _, name in pairs)
    return f"g ({given}) => ({back}) {{ {nodes} }}"


def quoted(model: onnx.ModelProto) -> None:
    """Names that even the text form cannot hold."""
    for old, new in (("x", 'say "x"'), ("y", "back\\slash")):
        for value in (*model.graph.input, *model.graph.output):
            value.name = new if value.name == old else value.name
        node = model.graph.node[0]
        node.input[:] = [new if name == old else name for name in node.input]
        node.output[:] = [new if name == old else name for name in node.output]
