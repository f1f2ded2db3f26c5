"""A graph as it lies on disk, run on one CPU thread and without a configuration."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import onnxruntime

_ERRORS_ONLY = 3


def open_bare(file: Path | bytes) -> onnxruntime.InferenceSession:
    """For files outside a repository: under check, or as their authors ship them."""
    import onnxruntime  # noqa: PLC0415  (only builds and loads run a graph here)

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = _ERRORS_ONLY
    source = file if isinstance(file, bytes) else str(file)
    return onnxruntime.InferenceSession(source, options, ["CPUExecutionProvider"])
