"""From an order to a variant in the repository, or to the reason why there is none.

A variant is a model of its own beside its parent, called ``<parent>-<kind>``. One that is made from
another variant is measured against the model that both come from.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, replace

from serving.deriving.draft import finish_draft, write_draft
from serving.deriving.trial import Trial, try_draft
from serving.errors import ModelError
from serving.host import cpu_model, gpus
from serving.importing.staging import publish, staging
from serving.models.repository import Model, find_model
from serving.models.samples import samples_for, source_of_samples
from serving.models.variants.kind import Kind, Order
from serving.models.variants.parameters import read_record
from serving.models.variants.record import VariantRecord
from serving.providers import runtime_version
from serving.tolerance import tolerance_for


@dataclass(frozen=True)
class Limits:
    """Attributes: ``max_drop`` of accuracy, 0 to 1; ``keep_anyway``, whatever speaks against it."""

    max_drop: float
    keep_anyway: bool = False


@dataclass(frozen=True)
class Derived:
    """A variant that was kept.

    Attributes:
        time_ratio: its time for one input over its parent's, as seen while it was measured.
        notes: what the user should know of it.
    """

    model: Model
    record: VariantRecord
    time_ratio: float
    notes: tuple[str, ...]


def derive(order: Order, kind: Kind, limits: Limits, progress: Callable[[str], None]) -> Derived:
    """Make the variant that ``order`` asks for, beside its parent.

    Raises:
        MachineError: the machine has not what the variant is to run on, or the disk is no use.
        ModelError: it cannot be made, loses more than the limit, or is of no use on its provider.
            Nothing is left behind.
    """
    parent = order.parent
    if parent.front or parent.config.front:
        raise ModelError(
            f"model {parent.name!r} has no graph of its own",
            hint=f"Make a variant of {parent.computed.name!r}, and a pipeline of that."
            if parent.front
            else "Make a variant of the model behind it.",
        )
    target = Model(parent.root, f"{parent.name}-{kind.name}")
    if target.folder.exists():
        raise ModelError(
            f"{target.folder} exists already", hint="Remove that folder to make it again."
        )
    earlier = read_record(parent.config)
    origin = parent if earlier is None else find_model(earlier.of, parent.root)
    with staging(parent.root, target.name) as draft:
        progress(f"making {draft.name}")
        made = write_draft(draft, _calibrated(order, kind, origin), kind)
        progress(f"measuring {draft.name} against {origin.name}")
        kinds = kind.name if earlier is None else f"{earlier.kind}+{kind.name}"
        trial = try_draft(draft, origin, tolerance_for(kinds))
        record = _record(origin, draft, trial, kind=kinds, made=made)
        notes = _judge(draft, record, trial, kind, limits)
        finish_draft(draft, parent, record, batched=trial.rows_independent)
        return Derived(publish(draft, parent.root), record, trial.time_ratio, notes)


def _calibrated(order: Order, kind: Kind, origin: Model) -> Order:
    """``order`` with the samples of the model where it has no inputs, unless those are made up."""
    wanted = "calibration" in kind.reads and not order.calibration
    if not wanted or source_of_samples(origin) == "generated":
        return order
    samples = samples_for(origin)
    source = f"the {len(samples)} inputs that it was measured on"
    return replace(order, calibration=samples, calibration_source=source)


def _judge(
    draft: Model, record: VariantRecord, trial: Trial, kind: Kind, limits: Limits
) -> tuple[str, ...]:
    """What the user should know of the variant.

    Raises:
        ModelError: something speaks against it, and it is not to be kept anyway.
    """
    against = []
    if record.drop > limits.max_drop:
        against.append(
            f"its drop is {record.drop:.1%} ({record.measure}, {record.inputs} inputs), more than "
            f"{limits.max_drop:.1%}"
        )
    objection = kind.objection(draft.file, draft.config.execution, trial.time_ratio)
    if objection:
        against.append(objection)
    if against and not limits.keep_anyway:
        raise ModelError(
            f"{draft.name} is refused: {'; '.join(against)}",
            hint="Nothing was kept. --max-drop sets the limit, --keep-anyway lifts all of them.",
        )
    if record.inputs_source == "generated":
        against.append("its inputs are made up, so that its accuracy says little")
    if not trial.rows_independent:
        against.append("rows answer otherwise together than alone, so max_batch_size is 0")
    return tuple(against)


def _record(origin: Model, draft: Model, trial: Trial, *, kind: str, made: str) -> VariantRecord:
    on_gpu = draft.config.execution.kind == "gpu"
    processor = ", ".join(gpu.name for gpu in gpus().gpus) if on_gpu else cpu_model()
    return VariantRecord(
        of=origin.name,
        kind=kind,
        made=made,
        sha256=draft.sha256(),
        size_bytes=_size_bytes(draft),
        parent_size_bytes=_size_bytes(origin),
        inputs_source=source_of_samples(origin),
        measured_with=f"ONNX Runtime {runtime_version()}, {trial.provider}, {processor}",
        **asdict(trial.accuracy),
    )


def _size_bytes(model: Model) -> int:
    """All files of the newest version, since weights may lie beside the graph."""
    return sum(file.stat().st_size for file in model.file.parent.rglob("*") if file.is_file())
