"""What an experiment is: a claim, the arms that test it, and where they are measured."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Protocol

from loadtest.playbook.loader import Load
from loadtest.playbook.record import Answers, MeasureName, WindowRecord
from loadtest.rig import RigListener
from serving.deriving.derive import Limits, derive
from serving.models.config import ModelConfig
from serving.models.repository import Model, place
from serving.models.stored_samples import FOLDER as SAMPLES
from serving.models.variants.kind import Order
from serving.models.variants.registry import resolve_kind
from serving.parity import Reference, reference_for


@dataclass(frozen=True)
class Pace:
    """How long an experiment takes.

    Attributes:
        starts: fresh starts of every arm; with more than one, each gives one value.
        windows: measured windows of each start, arms in turns.
        window_s: length of one.
        arms: how many are measured; those behind the judged one are only shown.
    """

    starts: int
    windows: int
    window_s: float
    arms: int | None = None

    def __str__(self) -> str:
        starts = "one start" if self.starts == 1 else f"{self.starts} starts"
        windows = "one window" if self.windows == 1 else f"{self.windows} windows"
        which = "" if self.arms is None else "; arms that are only shown are left out"
        return f"{starts} of each arm, {windows} of {self.window_s:g} s each, arms in turns{which}"


FULL = Pace(starts=3, windows=1, window_s=1.5)
QUICK = Pace(starts=1, windows=3, window_s=0.3, arms=2)


@dataclass
class Lab:
    """Where experiments on one model are made.

    Attributes:
        folder: of this experiment, for logs and what its arms need.
        shared: of the whole playbook, such as variants that several experiments use.
        load: measures one window on a server; of ``loader``.
    """

    model: Model
    folder: Path
    shared: Path
    server_cpus: tuple[int, ...]
    client_cpus: tuple[int, ...]
    usable_cpus: int
    pace: Pace
    listener: RigListener
    load: Load
    seed: int = 1

    @property
    def config(self) -> ModelConfig:
        return self.model.config

    @property
    def all_cpus(self) -> tuple[int, ...]:
        return tuple(sorted({*self.server_cpus, *self.client_cpus}))

    @property
    def reference(self) -> Reference:
        """What every arm must answer."""
        return _reference(self.model.root, self.model.name)

    def variant(self, kind: str) -> Model:
        """The model in another form, made once for the whole playbook whatever it loses.

        Raises:
            InfersweepError: it cannot be made.
        """
        root = self.shared / "variants"
        made = Model(root, f"{self.model.name}-{kind}")
        if not made.folder.is_dir():
            parent = place(self.model, root, instances=1, intra_op_threads=1)
            stored, link = self.model.folder / SAMPLES, parent.folder / SAMPLES
            if stored.is_dir() and not link.exists():
                link.symlink_to(stored.resolve(), target_is_directory=True)
            limits = Limits(max_drop=1.0, keep_anyway=True)
            derive(Order(parent), resolve_kind(kind), limits, self.listener.stage)
        return made


@cache
def _reference(root: Path, name: str) -> Reference:
    return reference_for(Model(root, name))


class Bench(Protocol):
    """An arm that is up and may be measured."""

    @property
    def start_s(self) -> float | None:
        """Seconds to ready."""
        ...

    @property
    def answers(self) -> Answers | None:
        """Against the reference; ``None`` where the arm asks what all others ask."""
        ...

    def window(self, start: int, repeat: int) -> WindowRecord | None:
        """Measure once; ``None`` where wrong answers forbid it.

        Raises:
            InfersweepError: the arm died, or the load failed.
        """
        ...

    def rss_bytes(self) -> int | None:
        """Memory of the arm's processes now."""
        ...

    def facts(self) -> Mapping[str, str]:
        """What was found of it."""
        ...


Start = Callable[[], AbstractContextManager[Bench]]
"""Brings an arm up; it is down again when left. May be called several times, never at once."""


class Arm(Protocol):
    """One of those that are measured against each other: ``Served`` or ``Called``."""

    @property
    def name(self) -> str:
        """Short, unique in the experiment."""
        ...

    @property
    def what(self) -> str:
        """In words, for people."""
        ...

    def prepare(self, lab: Lab) -> Start:
        """What is done once, however often it is started.

        Raises:
            InfersweepError: it cannot be.
        """
        ...


@dataclass(frozen=True)
class Advice:
    """What a deployment does that follows the claim; for the combination of all that helped.

    Attributes:
        setting: knobs of ``serving.knobs`` that our server has.
        load: fields of ``Settings`` that say how clients ask.
        variant: kind of the model that is served.
    """

    setting: Mapping[str, str] = field(default_factory=dict)
    load: Mapping[str, str | int | bool] = field(default_factory=dict)
    variant: str | None = None


def _nothing(_lab: Lab) -> str:
    return ""


@dataclass(frozen=True)
class Experiment:
    """One tuning tip as people pass it on, and how it is tested.

    Attributes:
        name: as ``--only`` takes it; that of its file, with hyphens.
        claim: one sentence.
        usual: the ratio that people state, from least to most; ``None`` for no end.
        page: of the documentation that explains it, with its anchor where it has one.
        arms: baseline first, then the changed one that is judged, then others that are only shown.
            May raise InfersweepError where they cannot be had here.
        measure: what the ratio is of; above 1 is better whatever it is.
        missing: why it cannot be measured here, as far as that is known before; empty if it can.
        may_lose: answers may differ beyond the tolerance, up to ``judging.BUDGET`` of inputs.
        advice: what follows where it helps, if a deployment can follow it.
        starts: fresh starts of each arm, where one takes so long that fewer must do.
        on_gpu: only a machine with an NVIDIA GPU can tell; ``make gpu-check`` runs it there.
    """

    name: str
    title: str
    claim: str
    usual: tuple[float, float | None]
    page: str
    arms: Callable[[Lab], Sequence[Arm]]
    measure: MeasureName = "throughput"
    missing: Callable[[Lab], str] = _nothing
    may_lose: bool = False
    advice: Advice | None = None
    starts: int | None = None
    on_gpu: bool = False
