"""Every knob: one entry each."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from importlib.util import find_spec
from types import MappingProxyType

from tritonclient.grpc import model_config_pb2 as schema

from serving.knobs.base import Knob, Room
from serving.models.execution import (
    EXECUTION_MODE,
    INTER_OP_THREADS,
    INTRA_OP_THREADS,
    MEMORY_ARENA,
    MEMORY_PATTERN,
)

CONFIG, COMMAND, ENVIRONMENT = "config.pbtxt", "command", "environment"
OFF = "off"
_TRITON, _OURS, _FASTAPI = "triton", "onnxruntime", "fastapi"
_SERVERS = (_TRITON, _OURS)
_ALL = (_TRITON, _OURS, _FASTAPI)
_BATCHES = (1, 2, 4, 8, 16, 32)
_DELAYS_US = (0, 100, 500, 1000, 2000, 5000)
_OTHER_SCHEDULERS = {"sequence_batching", "ensemble_scheduling"}
GUNICORN_ASGI = "gunicorn.workers.gasgi.ASGIWorker"


def _is_installed(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:
        # Not even its package: a generator's machine needs no gunicorn.
        return False


WORKER_CLASSES = (
    "uvicorn_worker.UvicornWorker",
    "uvicorn_worker.UvicornH11Worker",
    # Older releases of gunicorn have none.
    *((GUNICORN_ASGI,) if _is_installed(GUNICORN_ASGI.rpartition(".")[0]) else ()),
)


def batches(room: Room) -> bool:
    """Whether a dynamic batcher could join requests: there are batches, and no other scheduler."""
    return room.config.max_batch_size > 1 and not _OTHER_SCHEDULERS & set(room.config.unserved)


def counts(limit: float) -> tuple[str, ...]:
    """1, 2, 3, 4, 6, 8, 12, ... and the last whole number within ``limit``; 1 at the least."""
    last = max(1, int(min(limit, 1 << 20)))
    found = {1, last}
    power = 2
    while power <= last:
        found |= {power, power * 3 // 2} if power * 3 // 2 <= last else {power}
        power *= 2
    return tuple(map(str, sorted(found)))


def _count(text: str) -> str:
    if not text.isdecimal() or int(text) < 1:
        raise ValueError("a whole number of 1 or more")
    return str(int(text))


def _size(text: str) -> str:
    if not text.isdecimal():
        raise ValueError("a whole number")
    return str(int(text))


def _delay(text: str) -> str:
    if text != OFF and not text.isdecimal():
        raise ValueError(f"microseconds as a whole number, or {OFF} for no dynamic batcher")
    return text if text == OFF else str(int(text))


def _one_of(*words: str) -> Callable[[str], str]:
    def read(text: str) -> str:
        if text not in words:
            raise ValueError(" or ".join(words))
        return text

    return read


def _always(*values: str) -> Callable[[Room], tuple[str, ...]]:
    return lambda _: values


def _parameter(
    key: str, words: Mapping[str, str] = MappingProxyType({})
) -> Callable[[schema.ModelConfig, str], None]:
    """Writes a value, or the word that stands for it, as parameter ``key``."""

    def write(message: schema.ModelConfig, value: str) -> None:
        message.parameters[key].string_value = words.get(value, value)

    return write


def _write_instances(message: schema.ModelConfig, value: str) -> None:
    for group in message.instance_group:
        group.count = int(value)


def _write_batch_size(message: schema.ModelConfig, value: str) -> None:
    message.max_batch_size = size = int(value)
    for warm_up in message.model_warmup:
        warm_up.batch_size = min(warm_up.batch_size, size)
    if message.HasField("dynamic_batching"):
        preferred = list(message.dynamic_batching.preferred_batch_size)
        del message.dynamic_batching.preferred_batch_size[:]
        message.dynamic_batching.preferred_batch_size.extend(p for p in preferred if p <= size)


def _write_delay(message: schema.ModelConfig, value: str) -> None:
    if value == OFF:
        message.ClearField("dynamic_batching")
    else:
        message.dynamic_batching.max_queue_delay_microseconds = int(value)


def _default_instances(room: Room) -> str:
    """On a CPU one for each; on a GPU as many as the configuration says."""
    execution = room.config.execution
    own = execution.instances // max(1, len(set(execution.devices)))
    return str(own if execution.kind == "gpu" else room.cpus)


def _default_delay(room: Room) -> str:
    batching = room.config.dynamic_batching
    return OFF if batching is None else str(batching.max_queue_delay_ns // 1_000)


def _default_batch(room: Room) -> str:
    return str(room.config.max_batch_size)


def _batch_sizes(room: Room) -> tuple[str, ...]:
    if not batches(room):
        return (_default_batch(room),)
    return tuple(str(size) for size in _BATCHES if size <= room.config.max_batch_size)


def _delays(room: Room) -> tuple[str, ...]:
    return (OFF, *map(str, _DELAYS_US)) if batches(room) else (_default_delay(room),)


def _modes(room: Room) -> tuple[str, ...]:
    return ("sequential", "parallel") if room.threads >= 2 else ("sequential",)


def _flag(state: Callable[[Room], bool]) -> Callable[[Room], str]:
    return lambda room: "on" if state(room) else OFF


def _table() -> Iterator[Knob]:
    on_off = _one_of("on", OFF)
    bits = {"on": "1", OFF: "0"}
    yield Knob(
        "instances",
        "copies of the model side by side, each with its own session",
        _SERVERS,
        CONFIG,
        _default_instances,
        lambda room: counts(room.threads),
        _count,
        _write_instances,
    )
    yield Knob(
        "workers",
        "worker processes of gunicorn, each with its own session",
        (_FASTAPI,),
        CONFIG,
        _default_instances,
        lambda room: counts(room.threads),
        _count,
        _write_instances,
    )
    yield Knob(
        "intra_op_threads",
        "threads inside one operator",
        _ALL,
        CONFIG,
        lambda _: "1",
        lambda room: counts(room.threads),
        _count,
        _parameter(INTRA_OP_THREADS),
    )
    yield Knob(
        "execution_mode",
        "whether operators of different branches run at the same time",
        _ALL,
        CONFIG,
        lambda room: "parallel" if room.config.execution.parallel else "sequential",
        _modes,
        _one_of("sequential", "parallel"),
        _parameter(EXECUTION_MODE, {"sequential": "0", "parallel": "1"}),
        needs_onnxruntime=True,
    )
    yield Knob(
        "inter_op_threads",
        "operators that run at the same time in parallel execution",
        _ALL,
        CONFIG,
        lambda room: str(room.config.inter_op_threads),
        lambda room: counts(room.threads),
        _count,
        _parameter(INTER_OP_THREADS),
        needs_onnxruntime=True,
    )
    yield Knob(
        "max_batch_size",
        "rows that the dynamic batcher joins; larger requests are refused",
        _SERVERS,
        CONFIG,
        _default_batch,
        _batch_sizes,
        _size,
        _write_batch_size,
    )
    yield Knob(
        "queue_delay_us",
        "how long a request may wait for company; off for no dynamic batcher",
        _SERVERS,
        CONFIG,
        _default_delay,
        _delays,
        _delay,
        _write_delay,
    )
    yield Knob(
        "memory_arena",
        "ONNX Runtime keeps memory between runs",
        _ALL,
        CONFIG,
        _flag(lambda room: room.config.execution.memory_arena),
        _always("on", OFF),
        on_off,
        _parameter(MEMORY_ARENA, bits),
        needs_onnxruntime=True,
    )
    yield Knob(
        "memory_pattern",
        "ONNX Runtime plans one block of memory for all tensors of a shape seen before",
        _ALL,
        CONFIG,
        _flag(lambda room: room.config.execution.memory_pattern),
        _always("on", OFF),
        on_off,
        _parameter(MEMORY_PATTERN, bits),
        needs_onnxruntime=True,
    )
    yield Knob(
        "worker_threads",
        "inferences at once in one worker",
        (_FASTAPI,),
        COMMAND,
        lambda _: "1",
        lambda room: counts(room.threads),
        _count,
    )
    yield Knob(
        "worker_class",
        "what speaks HTTP in a worker",
        (_FASTAPI,),
        COMMAND,
        lambda _: WORKER_CLASSES[0],
        _always(*WORKER_CLASSES),
        _one_of(*WORKER_CLASSES),
    )
    yield Knob(
        "http_threads",
        "threads that read and write HTTP",
        (_TRITON,),
        COMMAND,
        lambda room: str(max(1, room.cpus)),
        lambda room: counts(2 * room.cpus),
        _count,
    )
    yield Knob(
        "replicas",
        "server processes behind one address",
        _SERVERS,
        COMMAND,
        lambda _: "1",
        lambda room: counts(room.cpus),
        _count,
    )
    yield Knob(
        "malloc_arenas",
        "heaps of the C library that threads share",
        _ALL,
        ENVIRONMENT,
        lambda _: "default",
        _always("default", "1", "2"),
        lambda text: text if text == "default" else _count(text),
        variable="MALLOC_ARENA_MAX",
    )


KNOBS: Mapping[str, Knob] = MappingProxyType({knob.name: knob for knob in _table()})
