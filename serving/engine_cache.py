"""TensorRT engines on disk: built once for a model, its shapes, its precision and its runtime.

ONNX Runtime names a cached engine after the graph, which two models may share. Here each
combination that needs an engine of its own has a folder of its own.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import onnxruntime

from serving.errors import MachineError, ModelError
from serving.gpu_libraries import tensorrt_version
from serving.host import gpus
from serving.models.accelerators import Accelerator
from serving.models.config import ModelConfig
from serving.models.weights import cache_folder, sha256_of
from serving.shape_ranges import shape_ranges

CACHE_ENABLE = "trt_engine_cache_enable"
CACHE_PATH = "trt_engine_cache_path"
_CALIBRATION = "trt_int8_calibration_table_name"
_ENGINES = "*.engine"


@dataclass(frozen=True)
class EngineBuild:
    """How a session came by its engine.

    Attributes:
        seconds: from the start of the session to the end of a first run of its own.
        outcome: ``built``, ``reused``, ``not cached`` (as asked), or ``cache not used``.
        folder: where the engines lie; ``None`` when they are not kept.
    """

    seconds: float
    outcome: str
    folder: Path | None

    def __str__(self) -> str:
        place = f", {self.folder}" if self.folder else ""
        return f"{self.outcome} in {self.seconds:.1f} s{place}"


def runtime_identity() -> dict[str, str]:
    """What an engine is built by and for: ONNX Runtime, TensorRT and the GPUs of this machine."""
    return {
        "onnxruntime": onnxruntime.__version__,
        "tensorrt": tensorrt_version(),
        "gpus": ", ".join(gpu.name for gpu in gpus().gpus),
    }


def prepare(
    config: ModelConfig, model_file: Path, tensorrt: Accelerator
) -> tuple[Accelerator, Path | None]:
    """TensorRT with its shape ranges and cache stated, and the folder of its engines.

    Raises:
        ModelError: the shape ranges are incomplete, or a calibration table is missing.
        MachineError: the folder cannot be written.
    """
    options = {**tensorrt.options, **shape_ranges(config, tensorrt.options)}
    folder = engine_folder(options, engine_key(model_file, options, runtime_identity()))
    _place_calibration(model_file, options, folder)
    options[CACHE_ENABLE] = "1" if folder else "0"
    if folder:
        options[CACHE_PATH] = str(folder)
    return replace(tensorrt, options=options), folder


def engine_key(model_file: Path, options: Mapping[str, str], runtime: Mapping[str, str]) -> str:
    """A name that two sessions share exactly when they can share an engine.

    Args:
        model_file: every file in its folder counts, for the weights may lie beside it.
        options: of the provider, with shape ranges and precision.
        runtime: as ``runtime_identity`` gives it.
    """
    folder = model_file.parent
    files = sorted(file for file in folder.rglob("*") if file.is_file())
    described = {
        "files": {str(file.relative_to(folder)): sha256_of(file) for file in files},
        "options": {key: options[key] for key in sorted(options) if key != CACHE_PATH},
        "runtime": dict(sorted(runtime.items())),
    }
    return hashlib.sha256(json.dumps(described, sort_keys=True).encode()).hexdigest()[:20]


def engine_folder(options: Mapping[str, str], key: str) -> Path | None:
    """The folder of one key, made and known to be writable; ``None`` when caching is switched off.

    It lies under the configuration's ``trt_engine_cache_path``, else under the project's cache.

    Raises:
        MachineError: it cannot be written.
    """
    if options.get(CACHE_ENABLE) == "0":
        return None
    root = Path(options[CACHE_PATH]) if CACHE_PATH in options else cache_folder() / "engines"
    folder = root / key
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise MachineError(
            f"TensorRT engines cannot be kept in {folder}: {error.strerror}",
            hint="Name another folder with INFERSWEEP_CACHE or trt_engine_cache_path.",
        ) from None
    return folder


def _place_calibration(model_file: Path, options: Mapping[str, str], folder: Path | None) -> None:
    """Copy the INT8 calibration table from beside the model to where TensorRT looks for it.

    Raises:
        ModelError: the table that the configuration names is not beside the model.
    """
    name = options.get(_CALIBRATION)
    if name is None:
        return
    table = model_file.parent / name
    if folder is None or not table.is_file():
        raise ModelError(
            f"{table} is to calibrate INT8 and "
            + ("the engine cache is off" if table.is_file() else "does not exist"),
            hint="Put the table beside model.onnx, and leave trt_engine_cache_enable at 1.",
        )
    shutil.copyfile(table, folder / name)


Engines = frozenset[tuple[str, int]]


def engines(folder: Path | None) -> Engines:
    """The engines kept in ``folder``: their names and when each was written."""
    files = folder.rglob(_ENGINES) if folder else ()
    return frozenset((file.name, file.stat().st_mtime_ns) for file in files)


@contextmanager
def exclusive(folder: Path | None) -> Iterator[None]:
    """One process at a time: another would read an engine that is half written."""
    if folder is None:
        yield
        return
    with (folder / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        try:
            yield
        finally:
            # Closing would not do: a process forked meanwhile has the file open too.
            fcntl.flock(lock, fcntl.LOCK_UN)


def record_build(seconds: float, folder: Path | None, before: Engines) -> EngineBuild:
    """What became of the cache once the session has run; ``before`` is what lay there."""
    if folder is None:
        return EngineBuild(seconds, "not cached", None)
    after = engines(folder)
    outcome = "cache not used" if not after else "reused" if after == before else "built"
    return EngineBuild(seconds, outcome, folder)
