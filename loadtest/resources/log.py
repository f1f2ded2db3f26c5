"""``resources.jsonl``: one sample per line, appended, and read back by time."""

from __future__ import annotations

import os
from array import array
from bisect import bisect_left, bisect_right
from contextlib import suppress
from pathlib import Path

from pydantic import ValidationError

from loadtest.resources.pace import LONGEST_S
from loadtest.resources.record import Sample
from serving.errors import ResultsError

_LAST_BYTES = 1 << 18
"""More than a line has."""


def read_samples(path: Path) -> list[Sample]:
    """All samples of a run, as they were taken; a half-written last line is left out.

    Raises:
        ResultsError: another line is damaged.
    """
    if not path.is_file():
        return []
    return _parsed(path, path.read_bytes())


def _parsed(path: Path, text: bytes) -> list[Sample]:
    lines = text.split(b"\n")[:-1]
    try:
        return [Sample.model_validate_json(line) for line in lines]
    except ValidationError as error:
        raise ResultsError(
            f"{path} is damaged: {str(error).splitlines()[0]}",
            hint="Restore it, or start again with another --out.",
        ) from None


class SampleLog:
    """Appends to the file, and knows where each of its own samples stands in it.

    Raises:
        OSError: on opening and appending.
    """

    def __init__(self, path: Path) -> None:
        """Open the file; a half-written last line is cut off."""
        self._path = path
        if path.is_file():
            text = path.read_bytes()
            whole = text[: text.rfind(b"\n") + 1]
            if whole != text:
                path.write_bytes(whole)
        self._file = path.open("ab")
        self._times, self._offsets = array("d"), array("Q")

    def append(self, sample: Sample) -> None:
        offset = self._file.tell()
        self._file.write(sample.model_dump_json().encode() + b"\n")
        self._file.flush()
        self._times.append(sample.unix_s)
        self._offsets.append(offset)

    def around(self, start_unix_s: float, end_unix_s: float) -> list[Sample]:
        """Samples of the window and of the time around it in which everything was read at least
        once: what costs much to read is not in each of them.
        """
        first = max(bisect_right(self._times, start_unix_s - 2 * LONGEST_S) - 1, 0)
        last = bisect_left(self._times, end_unix_s + 2 * LONGEST_S) + 1
        if first >= len(self._times):
            return []
        with self._path.open("rb") as file:
            file.seek(self._offsets[first])
            size = self._offsets[last] - self._offsets[first] if last < len(self._offsets) else -1
            return _parsed(self._path, file.read(size))

    def close(self) -> None:
        # What could not be written is still in the buffer, and fails once more.
        with suppress(OSError):
            self._file.close()


def last_sample(path: Path) -> Sample | None:
    """The newest whole line, read from the file's end; ``None`` where there is none."""
    try:
        with path.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(size - _LAST_BYTES, 0))
            lines = file.read().split(b"\n")
    except OSError:
        return None
    # The first may have lost its beginning, the last may be half written.
    whole = lines[:-1] if size <= _LAST_BYTES else lines[1:-1]
    return Sample.model_validate_json(whole[-1]) if whole else None
