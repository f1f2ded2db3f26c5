"""A variant before it is in the repository: its file, its configuration, what lies beside them."""

from __future__ import annotations

import logging
import shutil
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

from tritonclient.grpc import model_config_pb2 as schema

from serving.errors import InfersweepError, ModelError
from serving.importing.staging import FIRST_VERSION
from serving.models.config import load_message, render
from serving.models.inspection import differences, inspect
from serving.models.repository import Model
from serving.models.stored_samples import FOLDER as SAMPLES
from serving.models.variants.kind import Kind, Order
from serving.models.variants.parameters import drop_record, write_record
from serving.models.variants.record import VariantRecord
from serving.providers import require_execution

_CONFIG = "config.pbtxt"


def write_draft(draft: Model, order: Order, kind: Kind) -> str:
    """Write configuration and model file; returns what was done, in words.

    Raises:
        MachineError: the machine has not what the variant is to run on.
        ModelError: the file cannot be made, or has other inputs or outputs than the parent.
    """
    file = draft.file_of(FIRST_VERSION)
    message = load_message(order.parent.folder / _CONFIG)
    drop_record(message)
    message.name = draft.name
    message.ClearField("version_policy")
    kind.configure(message, order)
    _write(draft, message)
    require_execution(draft.config.execution)
    try:
        with _quiet_tools():
            made = kind.make(order, file)
    except (InfersweepError, OSError):
        raise
    except Exception as error:
        # The tools behind the kinds raise whatever they like.
        reason = str(error).strip().partition("\n")[0] or type(error).__name__
        raise ModelError(
            f"{draft.name} cannot be made: {reason}", hint="This kind does not suit this network."
        ) from error
    found = differences(inspect(file), draft.config)
    if found:
        raise ModelError(
            f"{draft.name} would not be like {order.parent.name}: {'; '.join(found)}",
            hint="A variant has its parent's inputs and outputs, by name, datatype and shape.",
        )
    return made


def finish_draft(draft: Model, parent: Model, record: VariantRecord, *, batched: bool) -> None:
    """Put ``record`` into the configuration, and the files that this refers to beside it.

    Unless it may be ``batched``, the variant takes one row at a time whatever its parent takes.
    """
    message = load_message(draft.folder / _CONFIG)
    if not batched:
        _take_one_row(message)
    write_record(message, record)
    _write(draft, message)
    for item in parent.folder.iterdir():
        if item.is_dir() and item.name != SAMPLES and not item.name.isdecimal():
            shutil.copytree(item, draft.folder / item.name)
        elif item.is_file() and item.name != _CONFIG:
            shutil.copyfile(item, draft.folder / item.name)


@contextmanager
def _quiet_tools() -> Iterator[None]:
    """Without their warnings: what they cost is measured afterwards."""
    disabled = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(disabled)


def _take_one_row(message: schema.ModelConfig) -> None:
    """The same tensors on the wire, one row at a time and never joined."""
    message.max_batch_size = 0
    message.ClearField("dynamic_batching")
    for tensor in (*message.input, *message.output):
        tensor.dims.insert(0, 1)
    for warm_up in message.model_warmup:
        warm_up.batch_size = 0
        for given in warm_up.inputs.values():
            given.dims.insert(0, 1)


def _write(model: Model, message: schema.ModelConfig) -> None:
    (model.folder / _CONFIG).write_text(render(message), encoding="utf-8")
