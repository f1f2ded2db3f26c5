"""Sample inputs as files beside a model: ``<model>/samples/<name>.npz``, arrays by input name.

NumPy's format has no BF16 and no text of free length: BF16 is kept as float32, text as UTF-8.
"""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np

from serving.errors import ModelError
from serving.models.config import ModelConfig
from serving.protocol import NUMPY_TYPES, Array

FOLDER = "samples"
SUFFIX = ".npz"


def read_arrays(path: Path, datatypes: Mapping[str, str]) -> dict[str, Array]:
    """The arrays of one file, in the datatypes of the inputs they are named after.

    A ``.npy`` file, which holds one array without a name, serves a model of one input.

    Raises:
        ModelError: the file cannot be read, names no such input, or has another datatype.
    """
    loaded = load(path, next(iter(datatypes)))
    if loaded.keys() != datatypes.keys():
        raise ModelError(
            f"{path} holds {', '.join(loaded) or 'nothing'}",
            hint=f"It must hold every input once, by name: {', '.join(datatypes)}.",
        )
    return {name: _fitted(loaded[name], datatypes[name], f"{path}, {name!r}") for name in datatypes}


def load(path: Path, only: str) -> dict[str, Array]:
    """The arrays of one file as they are; that of a ``.npy`` file is named ``only``.

    Raises:
        ModelError: the file cannot be read.
    """
    try:
        opened = np.load(path, allow_pickle=False)
        if not isinstance(opened, np.lib.npyio.NpzFile):
            return {only: opened}
        with opened:
            return dict(opened)
    except (OSError, ValueError, zipfile.BadZipFile, zlib.error) as error:
        raise ModelError(
            f"{path} cannot be read: {error}", hint="Write it with numpy.savez, without objects."
        ) from None


def write_arrays(path: Path, arrays: Mapping[str, Array]) -> None:
    """Write what ``read_arrays`` reads."""
    # Not numpy.savez, to which the names are those of arguments, and ``file`` is taken.
    with zipfile.ZipFile(path, "w") as archive:
        for name, array in arrays.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                np.lib.format.write_array(member, _kept(array), allow_pickle=False)


def read_stored(folder: Path, config: ModelConfig) -> Iterator[tuple[str, dict[str, Array]]]:
    """Every stored sample by name, in order of the names; none where there is no folder.

    Raises:
        ModelError: a file does not fit the configuration.
    """
    datatypes = {spec.name: spec.datatype for spec in config.inputs}
    for path in sorted((folder / FOLDER).glob(f"*{SUFFIX}")):
        arrays = read_arrays(path, datatypes)
        for spec in config.inputs:
            wanted, got = config.wire_dims(spec), arrays[spec.name].shape
            fits = len(wanted) == len(got) and all(
                want in (-1, have) for want, have in zip(wanted, got, strict=True)
            )
            if not fits or (config.batched and got[0] != 1):
                one = " with one row" if config.batched else ""
                raise ModelError(
                    f"{path}, {spec.name!r} has shape {list(got)}",
                    hint=f"The model takes {list(wanted)}{one}.",
                )
        yield path.stem, arrays


def _fitted(array: Array, datatype: str, where: str) -> Array:
    if datatype == "BYTES" and array.dtype.kind in "SU":
        encoded = np.char.encode(array, "utf-8") if array.dtype.kind == "U" else array
        return encoded.astype(np.object_)
    wanted = np.dtype(NUMPY_TYPES[datatype])
    if datatype == "BF16" and array.dtype == np.float32:
        return array.astype(wanted)
    if array.dtype != wanted:
        name = {"BYTES": "text", "BF16": "float32"}.get(datatype, wanted.name)
        raise ModelError(
            f"{where} is of type {array.dtype} and the input of {datatype}",
            hint=f"Store it as {name}, such as with array.astype.",
        )
    return array


def _kept(array: Array) -> Array:
    if array.dtype == NUMPY_TYPES["BF16"]:
        return array.astype(np.float32)
    if array.dtype.kind == "O":
        return array.astype(np.bytes_)
    return array
