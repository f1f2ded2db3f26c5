"""The image classifier on every GPU provider, against the CPU: ``make gpu-check``.

Then the playbook's experiments that only a machine with a GPU can tell about. Each provider and
each experiment runs in a process of its own, through the session that the servers use: its memory
is its own then, and one that dies takes no other with it. Without a GPU the script refuses.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

import numpy as np
import onnxruntime
import pynvml
from tritonclient.grpc import model_config_pb2 as schema

from benchmarks.rows import Row, at_least, at_most, unmeasured, write
from loadtest.playbook.catalogue import catalogue, chosen
from loadtest.playbook.experiment import QUICK, Lab
from loadtest.playbook.loader import loader
from loadtest.playbook.record import ExperimentRecord
from loadtest.playbook.run import run
from serving.cuda import cuda_driver, why_no_gpu
from serving.errors import InfersweepError, MachineError
from serving.gpu_libraries import tensorrt_version
from serving.host import cpu_budget, gpus, split_cpus
from serving.models.config import load_message, render
from serving.models.repository import Model, find_model
from serving.models.samples import samples_for, stack_rows
from serving.models.zoo.build import ensure_built
from serving.session import Session, open_session

MODEL = "image_classifier"
PRECISIONS: Mapping[str, str] = {
    "cpu": "",
    "cuda": "",
    "tensorrt-fp32": "FP32",
    "tensorrt-fp16": "FP16",
}
TOLERANCES: Mapping[str, float] = {"cuda": 5e-3, "tensorrt-fp32": 5e-3, "tensorrt-fp16": 2e-2}
"""Of the largest logit. Convolutions in float32 run as TF32 on a GPU, which keeps 10 bits."""
BATCHES = (1, 8)
SECONDS = 2.0
BUDGET_S = 290.0
REUSE = 0.5
SETTLED = "measured, answers kept"
_PROVIDER, _EXPERIMENT = "provider", "experiment"


@dataclass(frozen=True)
class Measurement:
    """What one provider did.

    Attributes:
        answers: the first output for each sample, row by row.
        first_s: the first run after the engine was there; ``median_s``: a later one, of one row.
        rows_per_s: by batch size.
        engine_s: until the engine was there, at the first and at the second start.
        memory_bytes: of the GPU, taken by this provider; 0 on a CPU.
    """

    provider: str
    answers: list[list[float]]
    first_s: float
    median_s: float
    rows_per_s: dict[str, float]
    nodes: dict[str, int] = field(default_factory=dict)
    engine_s: list[float] = field(default_factory=list)
    engine_outcomes: list[str] = field(default_factory=list)
    memory_bytes: int = 0


def main() -> int:
    reason = why_no_gpu(cuda_driver(), os.environ)
    try:
        if reason:
            raise MachineError(
                f"gpu-check needs an NVIDIA GPU, and CUDA sees none: {reason}",
                hint="`infersweep doctor` shows what is here.",
            )
        model = find_model(MODEL)
        ensure_built(model, print)
    except InfersweepError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    with tempfile.TemporaryDirectory() as folder:
        end = time.monotonic() + BUDGET_S
        rows = [*_rows(model, Path(folder), end), *_experiment_rows(Path(folder), end)]
    write("gpu_check", rows, _versions())
    return 1 if any(row.met is False for row in rows) else 0


def variant(model: Model, name: str, root: Path) -> Model:
    """``model`` in a repository of its own, asking for one provider; engines are kept beside it."""
    message = load_message(model.folder / "config.pbtxt")
    del message.instance_group[:]
    if name == "cpu":
        message.instance_group.add(count=1, kind=schema.ModelInstanceGroup.KIND_CPU)
    else:
        message.instance_group.add(count=1, kind=schema.ModelInstanceGroup.KIND_GPU, gpus=[0])
    if PRECISIONS[name]:
        accelerators = message.optimization.execution_accelerators
        tensorrt = accelerators.gpu_execution_accelerator.add(name="tensorrt")
        tensorrt.parameters["precision_mode"] = PRECISIONS[name]
        tensorrt.parameters["trt_engine_cache_path"] = str(root / "engines")
    made = Model(root / name, model.name)
    made.folder.mkdir(parents=True)
    (made.folder / "config.pbtxt").write_text(render(message), encoding="utf-8")
    source = model.file_of(model.version).parent.resolve()
    (made.folder / str(model.version)).symlink_to(source, target_is_directory=True)
    return made


def measure(model: Model, *, threads: int | None = None, seconds: float = SECONDS) -> Measurement:
    """Open, run and time; an engine is built at the first start and used at the second."""
    on_gpu = model.config.accelerator == "gpu"
    before = _memory_bytes() if on_gpu else 0
    session = open_session(model, intra_op_threads=threads)
    engines = [session.engine] if session.engine else []
    if engines:
        session.close()
        session = open_session(model)
        engines += [session.engine] if session.engine else []
    samples = samples_for(model)
    one = samples[0].inputs
    started = time.perf_counter()
    session.run(one)
    first_s = time.perf_counter() - started
    output = model.config.outputs[0].name
    answers = [session.run(sample.inputs)[output].ravel().tolist() for sample in samples]
    most = {batch: stack_rows([samples[0]] * batch) for batch in BATCHES}
    times = {batch: _times_s(session, inputs, seconds) for batch, inputs in most.items()}
    return Measurement(
        provider=session.provider,
        answers=answers,
        first_s=first_s,
        median_s=float(np.median(times[1])),
        rows_per_s={str(batch): batch / float(np.mean(took)) for batch, took in times.items()},
        nodes=dict(session.nodes),
        engine_s=[engine.seconds for engine in engines],
        engine_outcomes=[engine.outcome for engine in engines],
        memory_bytes=_memory_bytes() - before if on_gpu else 0,
    )


def rows_of(name: str, found: Measurement, cpu: Measurement) -> Iterator[Row]:
    """What one provider must keep, beside what is only recorded."""
    share = found.nodes.get(found.provider, 0) / max(1, sum(found.nodes.values()))
    yield Row(f"{name}: operators on {found.provider}", round(share, 3), "share", "> 0", share > 0)
    answers, expected = np.array(found.answers), np.array(cpu.answers)
    difference = float(np.abs(answers - expected).max() / np.abs(expected).max())
    yield at_most(f"{name}: largest difference / largest logit", [difference], TOLERANCES[name])
    same = float(np.mean(answers.argmax(axis=1) == expected.argmax(axis=1)))
    yield at_least(f"{name}: same class as on the CPU", [same], 1.0, "share")
    if found.engine_s:
        built, again = found.engine_s
        note = " then ".join(found.engine_outcomes)
        yield _recorded(f"{name}: engine build", built, "s", note)
        yield Row(
            f"{name}: second start / engine build",
            round(again / built, 3),
            "ratio",
            f"<= {REUSE:g}, reused",
            again <= REUSE * built and found.engine_outcomes == ["built", "reused"],
            note,
        )
    yield _recorded(f"{name}: first run", found.first_s * 1e3, "ms")
    yield _recorded(f"{name}: median run of one row", found.median_s * 1e3, "ms")
    for batch, rate in found.rows_per_s.items():
        yield _recorded(f"{name}: batch {batch}", rate, "rows/s")
    largest = str(max(BATCHES))
    gain = found.rows_per_s[largest] / cpu.rows_per_s[largest]
    yield at_least(f"{name}: batch {largest} / the CPU's", [gain], 1.0)
    yield _recorded(f"{name}: GPU memory", found.memory_bytes / 1e6, "MB")


def experiments() -> tuple[str, ...]:
    """Those of the playbook that need a GPU, by name."""
    return tuple(one.name for one in catalogue().values() if one.on_gpu)


def row_of(record: ExperimentRecord) -> Row:
    """The ratio of one experiment, which is only recorded; its answers must be right."""
    name = f"playbook {record.name}"
    if record.missing and not record.failed and not record.arms:
        return unmeasured(name, SETTLED, record.missing)
    if record.effect is None or record.effect.ratio is None:
        return Row(name, None, "", SETTLED, False, record.sentence)
    return Row(
        f"{name}: {record.judged} / {record.baseline}",
        round(record.effect.ratio, 3),
        "ratio",
        SETTLED,
        record.verdict not in ("breaks accuracy", "cannot be measured here"),
        record.sentence,
    )


def _rows(model: Model, root: Path, end: float) -> Iterator[Row]:
    cpu: Measurement | None = None
    for name in PRECISIONS:
        print(f"{name} ...", flush=True)
        found = _in_own_process(variant(model, name, root), end - time.monotonic())
        if isinstance(found, str):
            yield Row(f"{name}: runs", None, "", "runs", False, found)
            if name == "cpu":
                return
        elif cpu is None:
            cpu = found
            for batch, rate in found.rows_per_s.items():
                yield _recorded(f"{name}: batch {batch}", rate, "rows/s")
        else:
            yield from rows_of(name, found, cpu)


def _experiment_rows(root: Path, end: float) -> Iterator[Row]:
    for name in experiments():
        print(f"{name} ...", flush=True)
        line, why = _last_line(end - time.monotonic(), _EXPERIMENT, name, str(root / "playbook"))
        if why:
            yield Row(f"playbook {name}", None, "", SETTLED, False, why)
        else:
            yield row_of(ExperimentRecord.model_validate_json(line))


def _in_own_process(model: Model, limit_s: float) -> Measurement | str:
    """The measurement, or why there is none."""
    line, why = _last_line(limit_s, _PROVIDER, str(model.root))
    return why or Measurement(**json.loads(line))


def _last_line(limit_s: float, *arguments: str) -> tuple[str, str]:
    """What this script prints last when it is a child, and else why there is nothing."""
    try:
        done = subprocess.run(
            [sys.executable, "-m", "benchmarks.gpu_check", *arguments],
            capture_output=True,
            text=True,
            check=False,
            timeout=max(1.0, limit_s),
        )
    except subprocess.TimeoutExpired:
        return "", f"not done when the {BUDGET_S:.0f} s for all had passed"
    if done.returncode != 0:
        return "", (done.stderr.strip().splitlines() or [f"ended with {done.returncode}"])[-1]
    return done.stdout.splitlines()[-1], ""


def child(what: str, *arguments: str) -> int:
    """Measure one provider or run one experiment, and print what was found as a line of JSON."""
    try:
        print(_provider(*arguments) if what == _PROVIDER else _experiment(*arguments))
    except InfersweepError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    return 0


def _provider(root: str) -> str:
    """Of the one model under ``root``."""
    model = Model(Path(root), MODEL)
    threads = cpu_budget().usable if model.config.accelerator == "cpu" else None
    return json.dumps(asdict(measure(model, threads=threads)))


def _experiment(name: str, folder: str) -> str:
    """One experiment of the playbook, at its quick pace; variants are kept in ``folder``."""
    (experiment,) = chosen((name,))
    budget, shared = cpu_budget(), Path(folder)
    split = split_cpus(budget)
    with loader(split.client, shared / f"{name}.loader.log") as load:
        lab = Lab(
            model=find_model(MODEL),
            folder=shared / name,
            shared=shared,
            server_cpus=split.server,
            client_cpus=split.client,
            usable_cpus=budget.usable,
            pace=QUICK,
            listener=_Silent(),
            load=load,
        )
        return run(experiment, lab).model_dump_json()


class _Silent:
    """Nobody looks at a child while it measures."""

    def stage(self, text: str) -> None: ...

    def warning(self, text: str) -> None: ...

    def backend_excluded(self, label: str, reason: str) -> None: ...


def _times_s(session: Session, inputs: Mapping[str, np.ndarray], seconds: float) -> list[float]:
    session.run(inputs)
    times: list[float] = []
    end = time.perf_counter() + seconds
    while not times or time.perf_counter() < end:
        started = time.perf_counter()
        session.run(inputs)
        times.append(time.perf_counter() - started)
    return times


def _memory_bytes() -> int:
    """Used memory of the first GPU, which is that of all its processes."""
    pynvml.nvmlInit()
    try:
        return int(pynvml.nvmlDeviceGetMemoryInfo(pynvml.nvmlDeviceGetHandleByIndex(0)).used)
    finally:
        pynvml.nvmlShutdown()


def _recorded(name: str, value: float, unit: str, note: str = "") -> Row:
    return Row(name, round(value, 3), unit, "recorded", True, note)


def _versions() -> dict[str, str]:
    return {
        "onnxruntime": onnxruntime.__version__,
        "CUDA of onnxruntime": onnxruntime.cuda_version,
        "TensorRT": tensorrt_version(),
        "driver": ", ".join(sorted({gpu.driver for gpu in gpus().gpus})),
    }


if __name__ == "__main__":
    arguments: Sequence[str] = sys.argv[1:]
    sys.exit(child(*arguments) if arguments else main())
