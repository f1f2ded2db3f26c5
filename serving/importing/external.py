"""Weights that lie in files beside the model: found, checked, and copied as real files.

The format is ONNX's (https://onnx.ai/onnx/repo-docs/ExternalData.html). ONNX Runtime opens such a
file only if it lies below the model's own folder, links followed.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath, PureWindowsPath

import onnx
from onnx import TensorProto

from serving.errors import ModelError
from serving.models.normalise import nodes_of
from serving.models.repository import MODEL_FILE


@dataclass(frozen=True)
class ExternalFile:
    """Attributes: ``location`` is the path as the model states it, relative to its folder."""

    location: str
    path: Path
    size_bytes: int


def external_files(model: onnx.ModelProto, folder: Path) -> tuple[ExternalFile, ...]:
    """The weight files of a model that lies in ``folder``, each once, in the model's order.

    Raises:
        ModelError: a file is missing, too short, or lies outside ``folder``; it is named.
    """
    found: dict[str, ExternalFile] = {}
    for tensor in _external_tensors(model):
        entries = {entry.key: entry.value for entry in tensor.external_data}
        location = entries.get("location", "")
        if location not in found:
            found[location] = _open(location, folder, tensor.name)
        _require_whole(found[location], entries, tensor)
    return tuple(found.values())


def copy_external(files: tuple[ExternalFile, ...], target: Path) -> None:
    """Copy ``files`` below ``target`` under the names that the model knows them by."""
    for file in files:
        copy = target / file.location
        copy.parent.mkdir(parents=True, exist_ok=True)
        # The kernel copies: nothing of it comes into this process.
        shutil.copyfile(file.path, copy)


def _external_tensors(model: onnx.ModelProto) -> Iterator[TensorProto]:
    for tensor in _tensors(model):
        if tensor.data_location == TensorProto.EXTERNAL:
            yield tensor


def _tensors(model: onnx.ModelProto) -> Iterator[TensorProto]:
    yield from _initializers(model.graph)
    for node in nodes_of(model):
        for attribute in node.attribute:
            if attribute.HasField("t"):
                yield attribute.t
            yield from attribute.tensors
            for graph in (attribute.g, *attribute.graphs):
                yield from _initializers(graph)


def _initializers(graph: onnx.GraphProto) -> Iterator[TensorProto]:
    yield from graph.initializer
    for sparse in graph.sparse_initializer:
        yield sparse.values
        yield sparse.indices


def _open(location: str, folder: Path, tensor: str) -> ExternalFile:
    stated = PurePosixPath(location)
    outside = stated.is_absolute() or PureWindowsPath(location).is_absolute()
    if not location or outside or ".." in stated.parts or "\\" in location:
        raise ModelError(
            f"weight {tensor!r} lies in {location!r}, which is no path below the model's folder",
            hint="Save the model again with its weight files in its own folder.",
        )
    if stated == PurePosixPath(MODEL_FILE):
        raise ModelError(
            f"weight file {location!r} has the name that the model itself needs in a repository",
            hint="Save the model again with another name for its weight file.",
        )
    path = folder / location
    if not path.is_file():
        raise ModelError(
            f"weight file {location!r} is missing: {path} does not exist",
            hint="Put it beside the model, under that name.",
        )
    if not path.resolve().is_relative_to(folder.resolve()):
        raise ModelError(
            f"weight file {location!r} is a link out of the model's folder, to {path.resolve()}",
            hint="ONNX Runtime refuses such a link: put a copy of the file in its place.",
        )
    return ExternalFile(location, path, path.stat().st_size)


def _require_whole(file: ExternalFile, entries: dict[str, str], tensor: TensorProto) -> None:
    try:
        # Without a length the weight goes on to the file's end.
        offset, length = int(entries.get("offset") or 0), int(entries.get("length") or 0)
    except ValueError:
        offset, length = -1, 0
    if min(offset, length) < 0:
        raise ModelError(
            f"weight file {file.location!r}: weight {tensor.name!r} has offset "
            f"{entries.get('offset')!r} and length {entries.get('length')!r}",
            hint="Save the model again; both are numbers of bytes.",
        )
    if offset + length > file.size_bytes:
        raise ModelError(
            f"weight file {file.location!r} is cut off: it has {file.size_bytes} bytes, and weight "
            f"{tensor.name!r} ends at byte {offset + length}",
            hint="Copy it again, whole.",
        )
