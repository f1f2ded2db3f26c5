"""Inference engines in one process, as experiments call them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from types import MappingProxyType

from loadtest.playbook.called import Calls, Job
from serving.models.accelerators import CUDA, PRECISION_OPTIONS, TENSORRT, Accelerator
from serving.models.execution import Execution
from serving.models.repository import Model
from serving.models.samples import Sample, samples_for, stack_rows
from serving.protocol import Array
from serving.session import Session, open_session

Change = Callable[[Execution], Execution]


def as_it_is(execution: Execution) -> Execution:
    """No change."""
    return execution


def on_cpu(execution: Execution) -> Execution:
    """Without any accelerator, whatever the model's configuration asks for."""
    return replace(execution, kind="cpu", devices=(), accelerators=())


def on_cuda(execution: Execution, **options: str) -> Execution:
    """On the first GPU; ``options`` are ONNX Runtime's of its CUDA provider."""
    cuda = Accelerator(CUDA, MappingProxyType(options))
    return replace(execution, kind="gpu", devices=(0,), accelerators=(cuda,))


def on_tensorrt(execution: Execution, precision: str) -> Execution:
    """On TensorRT in ``FP32`` or a lower precision, with CUDA for what it leaves."""
    lower = {PRECISION_OPTIONS[precision]: "1"} if precision in PRECISION_OPTIONS else {}
    tensorrt = Accelerator(TENSORRT, MappingProxyType(lower))
    placed = on_cuda(execution)
    return replace(placed, accelerators=(tensorrt, *placed.accelerators))


def rows_of(model: Model, count: int = 1) -> list[Mapping[str, Array]]:
    """Real inputs, ``count`` rows of equal shapes in each; as many as there are samples."""
    samples = samples_for(model)
    if count == 1:
        return [sample.inputs for sample in samples]
    found: list[Mapping[str, Array]] = []
    for sample in samples:
        alike = [other for other in samples if _shapes(other) == _shapes(sample)]
        first = next(at for at, other in enumerate(alike) if other is sample)
        found.append(stack_rows([alike[(first + at) % len(alike)] for at in range(count)]))
    return found


def _shapes(sample: Sample) -> dict[str, tuple[int, ...]]:
    return {name: array.shape for name, array in sample.inputs.items()}


def calls_of(
    run: Callable[[Mapping[str, Array]], Mapping[str, Array]],
    model: Model,
    *,
    rows: int = 1,
    facts: Mapping[str, str] | None = None,
) -> Calls:
    """``run`` on one real input after the other."""
    inputs = rows_of(model, rows)
    count = len(inputs)
    return Calls(lambda number: run(inputs[number % count]), run, rows=rows, facts=facts or {})


def session_of(job: Job, change: Change = as_it_is) -> Session:
    """With one thread for each CPU of the process, its execution changed by ``change``.

    Raises:
        InfersweepError: as ``open_session`` says.
    """
    stated = replace(job.model.config.execution, intra_op_threads=len(job.cpus))
    return open_session(job.model, execution=change(stated))


def session_calls(job: Job, change: Change = as_it_is, rows: int = 1) -> Calls:
    """The session of ``session_of`` on one real input after the other. Raises what that raises."""
    session = session_of(job, change)
    return calls_of(session.run, job.model, rows=rows, facts=_facts(session))


def _facts(session: Session) -> dict[str, str]:
    found = {"provider": session.provider}
    if session.nodes:
        told = ", ".join(f"{count} on {name}" for name, count in session.nodes.items())
        found["operators"] = told
    if session.engine is not None:
        found["engine"] = str(session.engine)
    return found
