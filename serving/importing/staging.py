"""A model is made ready out of sight and moved into the repository when it is done."""

from __future__ import annotations

import errno
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import onnx

from serving.errors import MachineError, ModelError
from serving.models.repository import MODEL_FILE, Model

FIRST_VERSION = 1
_LARGE_BYTES = 1 << 30
_WEIGHTS_FILE = "weights.bin"
_DISK_FAULTS = {errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EPERM}


@contextmanager
def staging(root: Path, name: str) -> Iterator[Model]:
    """A model with an empty version folder, beside the models of ``root``; gone on leaving.

    Raises:
        MachineError: the disk is full, or may not be written.
    """
    try:
        root.mkdir(parents=True, exist_ok=True)
        hidden = tempfile.TemporaryDirectory(dir=root, prefix=".adding-")
    except OSError as error:
        raise _unwritable(root, error) from None
    with hidden as folder:
        try:
            model = Model(Path(folder), name)
            model.file_of(FIRST_VERSION).parent.mkdir(parents=True)
            yield model
        except OSError as error:
            if error.errno not in _DISK_FAULTS:
                raise
            raise _unwritable(root, error) from None


def _unwritable(root: Path, error: OSError) -> MachineError:
    return MachineError(
        f"{root} cannot be written: {error.strerror}",
        hint="Free some space, or name another folder with --repository.",
    )


def publish(staged: Model, root: Path) -> Model:
    """Move a whole new model into ``root``, in one step.

    Raises:
        ModelError: there is a model of that name by now.
    """
    model = Model(root, staged.name)
    _move(staged.folder, model.folder)
    return model


def publish_version(staged: Model, root: Path) -> int:
    """Move the staged version into the model of that name as its newest; returns its number.

    Raises:
        ModelError: that version is there by now.
    """
    model = Model(root, staged.name)
    version = max(model.versions, default=0) + 1
    _move(staged.file_of(FIRST_VERSION).parent, model.file_of(version).parent)
    return version


def write_graph(graph: onnx.ModelProto, file: Path) -> None:
    """Write a graph; large weights inside it go into a file beside it, one after the other."""
    if graph.ByteSize() > _LARGE_BYTES:
        onnx.save(graph, file, save_as_external_data=True, location=_WEIGHTS_FILE)
    else:
        file.write_bytes(graph.SerializeToString())


def size_bytes(model: Model, version: int) -> int:
    """Of all files of a version: the graph and its weights."""
    folder = model.file_of(version).parent
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def _move(source: Path, target: Path) -> None:
    try:
        source.rename(target)
    except OSError as error:
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
            raise
        raise ModelError(
            f"{target} exists since a moment ago", hint=f"Look into it; it may hold {MODEL_FILE}."
        ) from None
