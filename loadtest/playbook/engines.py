"""What arms that run an engine in their own process have in common: rows, calls, answers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from loadtest.playbook.called import Calls, Job
from serving.models.config import ModelConfig
from serving.models.execution import Execution
from serving.models.repository import Model
from serving.models.samples import samples_for, stack_rows
from serving.protocol import Array
from serving.session import open_session


def rows_of(model: Model, count: int = 1) -> list[Mapping[str, Array]]:
    """Real inputs, ``count`` rows in each; as many as there are samples."""
    samples = samples_for(model)
    if count == 1:
        return [sample.inputs for sample in samples]
    return [
        stack_rows([samples[(at + offset) % len(samples)] for offset in range(count)])
        for at in range(len(samples))
    ]


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


def session_calls(
    job: Job, change: Callable[[Execution], Execution] = lambda execution: execution, rows: int = 1
) -> Calls:
    """An ONNX Runtime session with one thread for each CPU, its execution changed by ``change``.

    Raises:
        InfersweepError: as ``open_session`` says.
    """
    config: ModelConfig = job.model.config
    execution = change(replace(config.execution, intra_op_threads=len(job.cpus)))
    session = open_session(job.model, execution=execution)
    return calls_of(session.run, job.model, rows=rows, facts={"provider": session.provider})
