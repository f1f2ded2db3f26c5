"""Inputs that a user brings along: checked against the graph, cut into single rows, stored."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from serving.errors import UsageError
from serving.importing.axes import GivenLengths, lengths_for, with_given_ranks
from serving.models.inspection import GraphTensor
from serving.models.repository import Model
from serving.models.samples import Sample
from serving.models.stored_samples import FOLDER, SUFFIX, read_arrays, write_arrays

_SINGLE = ".npy"


def read_samples(path: Path, inputs: Sequence[GraphTensor]) -> tuple[Sample, ...]:
    """One sample for each file at ``path``, with as many rows as the file has.

    A file is ``.npz`` with an array for each input, or ``.npy`` where there is one input; ``path``
    is a file or a folder of them.

    Raises:
        UsageError: there is no such file, or a shape does not fit the graph.
        ModelError: a file cannot be read, or misses an input.
    """
    samples = tuple(Sample(file.stem, _arrays(file, inputs)) for file in sample_files(path))
    for sample in samples:
        shapes = {name: array.shape for name, array in sample.inputs.items()}
        try:
            lengths_for(with_given_ranks(inputs, shapes), GivenLengths(shapes=shapes))
        except UsageError as error:
            raise UsageError(f"sample {sample.name!r}: {error.what}", hint=error.hint) from None
    return samples


def single_rows(samples: Sequence[Sample]) -> tuple[Sample, ...]:
    """Each row as a sample of its own, for a model whose first axis counts rows.

    Raises:
        UsageError: the inputs of a sample have different numbers of rows, or two rows one name.
    """
    found = []
    for sample in samples:
        counts = {len(array) for array in sample.inputs.values()}
        if len(counts) != 1:
            raise UsageError(
                f"sample {sample.name!r} has {' and '.join(map(str, sorted(counts)))} rows",
                hint="Give each input of a sample equally many.",
            )
        (count,) = counts
        for row in range(count):
            name = sample.name if count == 1 else f"{sample.name}-{row:0{len(str(count))}}"
            arrays = {key: array[row : row + 1] for key, array in sample.inputs.items()}
            found.append(Sample(name, arrays))
    if len({sample.name for sample in found}) != len(found):
        raise UsageError(
            "two rows of the sample inputs would have one name", hint="Rename one of the files."
        )
    return tuple(found)


def store(samples: Sequence[Sample], model: Model) -> None:
    """Put ``samples`` beside the model, where every later check finds them."""
    folder = model.folder / FOLDER
    folder.mkdir()
    for sample in samples:
        write_arrays(folder / (sample.name + SUFFIX), sample.inputs)


def sample_files(path: Path) -> list[Path]:
    """The file at ``path``, or those in that folder by name; raises UsageError without any."""
    if path.is_dir():
        files = sorted(file for file in path.iterdir() if file.suffix in (SUFFIX, _SINGLE))
    else:
        files = [path] if path.is_file() else []
    if not files:
        raise UsageError(
            f"there are no sample inputs at {path}",
            hint=f"Name a {SUFFIX} file, or a folder of {SUFFIX} or {_SINGLE} files.",
        )
    stems = [file.stem for file in files]
    if len(set(stems)) != len(stems):
        raise UsageError(f"two files in {path} have one name", hint="Keep one of them.")
    return files


def _arrays(file: Path, inputs: Sequence[GraphTensor]) -> dict[str, np.ndarray]:
    datatypes = {tensor.name: tensor.datatype for tensor in inputs}
    arrays = read_arrays(file, datatypes)
    for tensor in inputs:
        if tensor.dims == ():
            # A tensor without any axis is served as one of length 1.
            arrays[tensor.name] = arrays[tensor.name].reshape(-1)
    return arrays
