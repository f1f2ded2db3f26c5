"""One version of a model in memory: its sessions, its queue, its statistics."""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace

from serving.backends.onnxruntime.plan import Planner
from serving.backends.onnxruntime.settings import Limits
from serving.batching import Batcher, Pending
from serving.errors import ModelError
from serving.exposition import Source
from serving.models.config import ModelConfig
from serving.models.probes import probe_rows, warm_up_inputs
from serving.models.repository import Model
from serving.pipelines import FrontRunner
from serving.protocol import ProtocolError
from serving.rows import try_rows
from serving.session import Session, open_session
from serving.statistics import VersionStatistics


@dataclass(frozen=True)
class Prepared:
    """Sessions that are warm, before requests may come.

    Attributes:
        config: as it will be served.
        sessions: one for each instance; the same one where instances can share it. Of a front
            half, what runs in their place.
        unbatched: why requests are not joined although the configuration asks for it.
        load_s: until the sessions were made; ``warm_up_s`` is the time of first runs after that.
    """

    model: Model
    version: int
    config: ModelConfig
    sessions: tuple[Session | FrontRunner, ...]
    unbatched: str
    load_s: float
    warm_up_s: float


def prepare(model: Model, version: int) -> Prepared:
    """Open one session per instance and warm each up; takes its time and needs no event loop.

    Raises:
        MachineError: the provider is not there.
        ModelError: the file or the configuration cannot be served.
    """
    config = model.config
    if config.unserved:
        raise ModelError(
            f"model {model.name!r}: its config.pbtxt states {', '.join(config.unserved)}",
            hint="This server does not know that; serve the model with the triton backend.",
        )
    if config.front is not None:
        runners = (FrontRunner(model),) * config.instances
        return Prepared(model, version, config, runners, "", 0.0, 0.0)
    began = time.monotonic()
    sessions = _open(model, version)
    opened = time.monotonic()
    try:
        for warm_up, inputs in warm_up_inputs(config, model.folder):
            for session in set(sessions):
                for _ in range(warm_up.count):
                    session.run(inputs)
        unbatched = _dependence(config, sessions[0])
    except ProtocolError as error:
        raise ModelError(
            f"model {model.name!r} cannot be warmed up: {error}",
            hint="Mend model_warmup or max_batch_size in its config.pbtxt.",
        ) from None
    if unbatched:
        config = replace(config, dynamic_batching=None)
    warm = time.monotonic()
    return Prepared(model, version, config, sessions, unbatched, opened - began, warm - opened)


@dataclass
class LoadedVersion:
    """Serves requests; made on the event loop.

    Attributes:
        signature: what lay on disk when it was loaded.
    """

    prepared: Prepared
    limits: Limits
    signature: object
    statistics: VersionStatistics = field(default_factory=VersionStatistics)

    def __post_init__(self) -> None:
        self.config = self.prepared.config
        self.name = self.config.name
        self.version = self.prepared.version
        self.planner = Planner(self.config, self.version, self.limits.elements)
        self._batcher = Batcher(
            self.config,
            [session.run for session in self.prepared.sessions],
            queue_limit=self.limits.queue,
            on_batch=self.statistics.record,
        )

    @property
    def model(self) -> Model:
        return self.prepared.model

    @property
    def unbatched(self) -> str:
        """Why requests are not joined although the configuration asks for it."""
        return self.prepared.unbatched

    @property
    def waiting(self) -> int:
        """Requests that no instance has taken yet."""
        return self._batcher.waiting

    @property
    def source(self) -> Source:
        """What its metrics are made of."""
        return Source(
            self.name,
            self.version,
            self.statistics,
            pending=self._batcher.waiting,
            instances=len(self.prepared.sessions),
        )

    def submit(self, request: Pending) -> None:
        """Raises QueueFullError when it cannot wait."""
        self._batcher.submit(request)

    def cancel(self, request: Pending) -> None:
        """The client has gone."""
        self._batcher.cancel(request)

    async def close(self) -> None:
        """Answer what is queued, then free the sessions' memory."""
        await self._batcher.close()
        for session in set(self.prepared.sessions):
            session.close()


def _open(model: Model, version: int) -> tuple[Session, ...]:
    """One session per instance, or one for all where that is the same but for the memory.

    A run on the CPU with a single thread happens in the thread that asks for it, so several may use
    one session at once; with more, they would wait for one pool.
    """
    execution = model.config.execution
    apart = bool(execution.accelerators) or execution.intra_op_threads > 1 or execution.parallel
    count = execution.instances if apart else 1
    opened = [open_session(model, version=version, instance=n) for n in range(count)]
    return tuple(opened) if apart else (opened[0],) * execution.instances


def _dependence(config: ModelConfig, session: Session) -> str:
    """Why rows must not be joined; empty when joining them does not change their answers.

    Raises:
        ModelError: the graph takes no batch at all.
    """
    if not config.batched or config.max_batch_size < 2 or config.dynamic_batching is None:
        return ""
    rows = probe_rows(config, 2)
    if rows is None:
        return ""
    trial = try_rows(session.run, rows)
    _, shapes = trial.seen[-1]
    if not trial.takes_more or any(shape[:1] != (2,) for shape in shapes.values()):
        raise ModelError(
            f"model {config.name!r} cannot be batched: {trial.why_dependent}",
            hint="Set max_batch_size to 0 in its config.pbtxt, or export it with a free axis.",
        )
    return trial.why_dependent
