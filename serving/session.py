"""One ONNX Runtime session from a model's configuration, on the providers that were asked for.

ONNX Runtime sizes its pool to the host and falls back to the CPU without a word. Here thread counts
are always stated, and a fallback is an error.
"""

from __future__ import annotations

import ctypes
import os
import re
import time
import weakref
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import NoReturn

import numpy as np
import onnxruntime
from onnxruntime.capi.onnxruntime_pybind11_state import (
    Fail,
    InvalidArgument,
    RuntimeException,
)
from onnxruntime.capi.onnxruntime_pybind11_state import NotImplemented as NoKernel

from serving import engine_cache
from serving.engine_cache import EngineBuild
from serving.errors import InfersweepError, MachineError, ModelError, ServerError
from serving.gpu_libraries import missing, preload, way_out
from serving.marshalling import bind
from serving.models.accelerators import Accelerator
from serving.models.config import ModelConfig
from serving.models.execution import Execution
from serving.models.repository import Model
from serving.protocol import NUMPY_TYPES, Array, ProtocolError
from serving.providers import require_execution, require_used
from serving.shape_ranges import best_shapes

_NOTHING_LOGGED = 4
"""Errors are raised; written to the log as well, one client could fill a disk with its own."""
_PREFIX = re.compile(r"\[ONNXRuntimeError\] : \d+ : \w+ : ")
_DEVICE_FAULT = re.compile(r"allocat|CUDA|cuDNN|CUDNN|CUBLAS|TensorRT")


class Session:
    """Runs a model in the process that opened it. ``run`` may be called from several threads.

    Attributes:
        provider: the execution provider asked for first, which takes what it can.
        nodes: operators by provider; empty when the CPU was the only one.
        engine: how TensorRT came by its engine, ``None`` without TensorRT.
    """

    def __init__(
        self,
        config: ModelConfig,
        runtime: onnxruntime.InferenceSession,
        *,
        nodes: Mapping[str, int] | None = None,
    ) -> None:
        options = onnxruntime.RunOptions()
        if config.execution.arena_shrinkage:
            key = "memory.enable_memory_arena_shrinkage"
            options.add_run_config_entry(key, config.execution.arena_shrinkage)
        self._names = [spec.name for spec in config.outputs]
        self._runtime = runtime
        self._call = bind(runtime, config, options)
        self.provider: str = runtime.get_providers()[0]
        self.nodes: Mapping[str, int] = nodes or {}
        self.engine: EngineBuild | None = None
        _opened.add(self)

    def __str__(self) -> str:
        return self.provider

    def run(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """Output name to array, in the configuration's order; in host memory on any provider.

        Raises:
            ProtocolError: the graph refuses these inputs, such as a length on a free axis.
            ServerError: the device or its memory failed; or the session is closed, or was opened
                before this process was forked.
        """
        try:
            arrays = self._call(inputs)
        except InvalidArgument as error:
            raise ProtocolError(f"the model refuses its inputs: {_reason(error)}") from None
        except (Fail, RuntimeException) as error:
            # Operators report lengths that do not fit in the same way as a device that fails.
            if _DEVICE_FAULT.search(str(error)):
                raise ServerError(
                    f"{self.provider} failed: {_reason(error)}",
                    hint="Lower the batch, or free memory.",
                ) from None
            raise ProtocolError(f"the model refuses its inputs: {_reason(error)}") from None
        except UnicodeDecodeError as error:
            raise ServerError(
                f"the model answers text that is not UTF-8: {error}",
                hint="Let it answer bytes as UINT8.",
            ) from None
        return dict(zip(self._names, arrays, strict=True))

    @property
    def inferred(self) -> dict[str, tuple[int | str | None, ...]]:
        """The outputs' shapes as the runtime infers them: a name or ``None`` where free."""
        return {value.name: tuple(value.shape) for value in self._runtime.get_outputs()}

    def end_trace(self) -> Path:
        """Write what was traced; returns its file. Only of a session opened with ``trace``."""
        return Path(self._runtime.end_profiling())

    def close(self) -> None:
        """Free the model's memory, once the runs that are under way have ended."""
        self._end("a closed session was used", "Open another one.")

    def disown(self) -> None:
        """Never run nor free this session here: its threads stayed behind in the parent process.

        A parallel run and the deletion of the session would wait for them for ever.
        """
        # One reference that is never given back, so that not even the interpreter's end deletes it.
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(self._runtime))
        self._end(
            f"a session opened before the fork was used in process {os.getpid()}",
            "Open sessions after the fork, one in each worker.",
        )

    def _end(self, what: str, hint: str) -> None:
        def refuse(_: Mapping[str, Array]) -> NoReturn:
            raise ServerError(what, hint=hint)

        self._call = refuse
        self._runtime = None
        _opened.discard(self)


_opened: weakref.WeakSet[Session] = weakref.WeakSet()


def _disown_inherited() -> None:
    for session in list(_opened):
        session.disown()


os.register_at_fork(after_in_child=_disown_inherited)


def open_session(
    model: Model,
    *,
    version: int | None = None,
    intra_op_threads: int | None = None,
    instance: int = 0,
    packed: bool = True,
    execution: Execution | None = None,
    trace: Path | None = None,
) -> Session:
    """Load a version of ``model`` (the newest) with the threads and providers its config states.

    ``instance`` says which of the configuration's instances this is; it decides the GPU. Weights
    that are not ``packed`` for speed stay where they lie: quick to load, and in memory once.
    ``execution`` takes the place of the configuration's. With ``trace``, the beginning of a file's
    path, ONNX Runtime notes what each operator takes.

    Raises:
        MachineError: a provider or GPU is not there, or the session came up on another one.
        ModelError: ONNX Runtime cannot load the file, or a provider cannot run it.
    """
    config = model.config
    execution = execution or config.execution
    if intra_op_threads:
        execution = replace(execution, intra_op_threads=intra_op_threads)
    if not packed:
        entries = {**execution.session_entries, "session.disable_prepacking": "1"}
        execution = replace(execution, session_entries=MappingProxyType(entries))
    file = model.file if version is None else model.file_of(version)
    require_execution(execution)
    onnxruntime.set_default_logger_severity(_NOTHING_LOGGED)
    if execution.kind == "gpu":
        preload()
    if execution.tensorrt is None:
        return _load(config, file, execution, instance, trace)
    return _load_with_engine(config, file, execution, execution.tensorrt, instance, trace)


def _load_with_engine(
    config: ModelConfig,
    file: Path,
    execution: Execution,
    tensorrt: Accelerator,
    instance: int,
    trace: Path | None,
) -> Session:
    """Load and run once, so that the engine is there before the first request."""
    prepared, folder = engine_cache.prepare(config, file, tensorrt)
    stated = tuple(prepared if item is tensorrt else item for item in execution.accelerators)
    with engine_cache.exclusive(folder):
        before, started_ns = engine_cache.engines(folder), time.monotonic_ns()
        session = _load(config, file, replace(execution, accelerators=stated), instance, trace)
        session.run(_zeros(config, prepared.options))
        seconds = (time.monotonic_ns() - started_ns) / 1e9
        session.engine = engine_cache.record_build(seconds, folder, before)
    return session


def _zeros(config: ModelConfig, ranges: Mapping[str, str]) -> dict[str, Array]:
    shapes = best_shapes(config, ranges)
    return {
        spec.name: np.zeros(shapes[spec.name], NUMPY_TYPES[spec.datatype]) for spec in config.inputs
    }


def _load(
    config: ModelConfig, file: Path, execution: Execution, instance: int, trace: Path | None
) -> Session:
    options = _session_options(execution)
    if trace is not None:
        options.enable_profiling = True
        options.profile_file_prefix = str(trace)
    try:
        runtime = onnxruntime.InferenceSession(
            str(file),
            options,
            providers=execution.provider_options(instance),
            enable_fallback=0,
        )
    except Exception as error:
        # ONNX Runtime's exceptions share no base class.
        raise _load_fault(config, file, execution, error) from None
    require_used(config.name, execution.providers, runtime.get_providers())
    return Session(config, runtime, nodes=_nodes(config, execution, runtime))


def _session_options(execution: Execution) -> onnxruntime.SessionOptions:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = execution.intra_op_threads
    options.inter_op_num_threads = execution.inter_op_threads
    modes = onnxruntime.ExecutionMode
    options.execution_mode = modes.ORT_PARALLEL if execution.parallel else modes.ORT_SEQUENTIAL
    options.graph_optimization_level = getattr(
        onnxruntime.GraphOptimizationLevel, execution.graph_level
    )
    options.enable_cpu_mem_arena = execution.memory_arena
    options.enable_mem_pattern = execution.memory_pattern
    options.log_severity_level = _NOTHING_LOGGED
    # A thread that spins between operators takes the core that the next request needs.
    entries = {"session.intra_op.allow_spinning": "0", "session.inter_op.allow_spinning": "0"}
    if len(execution.providers) > 1:
        entries["session.record_ep_graph_assignment_info"] = "1"
    for key, value in {**entries, **execution.session_entries}.items():
        options.add_session_config_entry(key, value)
    return options


def _nodes(
    config: ModelConfig, execution: Execution, runtime: onnxruntime.InferenceSession
) -> dict[str, int]:
    """Operators by provider.

    Raises:
        ModelError: the provider asked for first takes none, so that others would do all the work.
    """
    if len(execution.providers) == 1:
        return {}
    nodes: Counter[str] = Counter()
    for part in runtime.get_provider_graph_assignment_info():
        nodes[part.ep_name] += len(part.get_nodes())
    if not nodes[execution.providers[0]]:
        raise ModelError(
            f"{execution.providers[0]} takes none of the {nodes.total()} operators of model "
            f"{config.name!r}",
            hint="Take the accelerator out of its config.pbtxt.",
        )
    return dict(nodes)


def _load_fault(
    config: ModelConfig, file: Path, execution: Execution, error: Exception
) -> InfersweepError:
    line = _reason(error)
    asked = ", ".join(execution.providers)
    if isinstance(error, NoKernel):
        return ModelError(
            f"{file} is not runnable on {asked}: {line}",
            hint="Export it in another datatype, or ask for a provider that has the operator.",
        )
    if isinstance(error, RuntimeError) and execution.kind == "gpu":
        absent = {name: None for provider in execution.providers for name in missing(provider)}
        reason = f"{', '.join(absent)} missing" if absent else line
        return MachineError(
            f"model {config.name!r} asked for {asked}, and they do not start: {reason}",
            hint=way_out(absent) or "`infersweep doctor` shows what is here.",
        )
    again = f"Build it again with `infersweep models build {config.name}`."
    ranges = "docs/gpu.md says which shape ranges TensorRT needs."
    return ModelError(
        f"{file} cannot be loaded: {line}", hint=ranges if "profile" in line else again
    )


def _reason(error: Exception) -> str:
    """The first line of ONNX Runtime's message, without its own prefix."""
    return _PREFIX.sub("", str(error)).partition("\n")[0].rstrip(". ")
