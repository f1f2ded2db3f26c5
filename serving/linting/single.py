"""Rules for the configuration of one model, as Triton 2.51 and our own servers keep them."""

from __future__ import annotations

import difflib
import math
from collections.abc import Iterable, Iterator

from tritonclient.grpc import model_config_pb2 as schema

from serving.errors import InfersweepError, ModelError
from serving.linting.document import Document, Finding
from serving.models.config import ModelConfig, load_config
from serving.models.execution import INTER_OP_THREADS, INTRA_OP_THREADS
from serving.models.inspection import differences, inspect
from serving.models.pipeline import states_front_half
from serving.models.probes import warm_up_inputs
from serving.models.repository import MODEL_FILE
from serving.models.stored_samples import read_stored
from serving.models.zoo import ENTRIES
from serving.providers import require_execution

_ONNX = "onnxruntime"
_OF_TRITON = (
    *("python", "pytorch", "tensorrt", "tensorflow", "openvino", "dali", "fil", "vllm"),
    *("tensorrtllm", "tensorrt_plan", "pytorch_libtorch", "tensorflow_graphdef"),
    *("tensorflow_savedmodel", "identity"),
)
_OF_MACHINES = "Write kind: KIND_CPU, or KIND_GPU where it shall run on one."


def check_common(document: Document) -> Iterator[Finding]:
    """Rules that ensembles keep too."""
    message, folder = document.message, document.model.name
    if message.name and message.name != folder:
        yield document.error(
            f"the model is named {message.name!r} and its folder {folder!r}",
            "Triton wants both to be the same.",
            "name",
        )
    if "max_batch_size" not in document.root.fields:
        yield document.warning(
            "max_batch_size is not written",
            "Write the number, 0 for none: a server may otherwise choose one.",
        )
    elif message.max_batch_size < 0:
        yield document.error(
            f"max_batch_size is {message.max_batch_size}", "Write 0 or more.", "max_batch_size"
        )
    for kind, tensors in (("input", message.input), ("output", message.output)):
        if not tensors:
            yield document.error(
                f"there is no {kind}", f"State every {kind}, with its datatype and dims."
            )
        yield from _tensors(document, kind, tensors)


def check_model(document: Document, *, whole: bool) -> Iterator[Finding]:
    """Rules for a model that is no ensemble; ``whole`` when ``check_common`` found no error."""
    batching = list(_batching(document))
    yield from batching
    yield from _placement(document)
    if not _is_onnx(document.message):
        yield from _other_backend(document)
    # Our own servers refuse what was found so far in other words.
    elif whole and not batching:
        yield from _as_loaded(document)


def _is_onnx(message: schema.ModelConfig) -> bool:
    return bool(message.backend == _ONNX or message.platform == f"{_ONNX}_onnx")


def _other_backend(document: Document) -> Iterator[Finding]:
    key = "platform" if document.message.platform else "backend"
    stated = document.message.platform or document.message.backend
    if states_front_half(document.message):
        try:
            load_config(document.file)
        except ModelError as error:
            what = error.what.removeprefix(f"{document.file}").lstrip(": ")
            yield document.error(what, error.hint, *_steps(document, what))
    elif not stated:
        yield document.warning("there is no backend", f'Write backend: "{_ONNX}".')
    elif stated in _OF_TRITON:
        yield document.warning(
            f"{key} {stated!r} is known to Triton alone", "Serve it with triton.", key
        )
    else:
        near = difflib.get_close_matches(stated, (_ONNX, *_OF_TRITON), n=1)
        hint = f"Did you mean {near[0]}?" if near else f'Write backend: "{_ONNX}".'
        yield document.error(f"there is no {key} {stated!r}", hint, key)


def _tensors(
    document: Document, kind: str, tensors: Iterable[schema.ModelInput | schema.ModelOutput]
) -> Iterator[Finding]:
    seen = set()
    for index, tensor in enumerate(tensors):
        where = (kind, index)
        label = f"{kind} {tensor.name!r}"
        if not tensor.name:
            yield document.error(f"an {kind} has no name", "Give it the graph's.", *where)
        elif tensor.name in seen:
            yield document.warning(
                f"{label} stands there twice", "Triton takes one of them: leave one.", *where
            )
        seen.add(tensor.name)
        if tensor.data_type == schema.TYPE_INVALID:
            yield document.error(f"{label} has no data_type", "Write one.", *where, "data_type")
        if not tensor.dims:
            yield document.error(
                f"{label} has no dims",
                "Write them without the batch axis; [ 1 ] for a tensor without any axis.",
                *where,
            )
        if any(length == 0 or length < -1 for length in tensor.dims):
            yield document.error(
                f"{label} has dims {list(tensor.dims)}",
                "Write lengths above 0, or -1 for one that may vary.",
                *where,
                "dims",
            )
        yield from _reshape(document, label, tensor, where)


def _reshape(
    document: Document,
    label: str,
    tensor: schema.ModelInput | schema.ModelOutput,
    where: tuple[str, int],
) -> Iterator[Finding]:
    if not tensor.HasField("reshape"):
        return
    dims, shape = list(tensor.dims), list(tensor.reshape.shape)
    if not shape and not document.message.max_batch_size:
        yield document.error(
            f"{label} has an empty reshape, and the model no batch axis",
            "Take the reshape out: dims [ 1 ] serves a tensor without any axis.",
            *where,
            "reshape",
        )
    elif -1 not in dims and -1 not in shape and math.prod(dims) != math.prod(shape):
        yield document.error(
            f"{label} has {math.prod(dims)} elements in dims {dims} and {math.prod(shape)} in "
            f"reshape {shape}",
            "A reshape must keep their number; it cannot make a batch axis.",
            *where,
            "reshape",
        )


def _batching(document: Document) -> Iterator[Finding]:
    message = document.message
    if not message.HasField("dynamic_batching"):
        return
    limit = message.max_batch_size
    preferred = list(message.dynamic_batching.preferred_batch_size)
    wrong = [size for size in preferred if not 0 < size <= limit]
    if wrong:
        yield document.error(
            f"preferred_batch_size {wrong[0]} is outside 1..{limit}, which max_batch_size allows",
            "Raise max_batch_size or change preferred_batch_size.",
            *("dynamic_batching", "preferred_batch_size"),
        )
    elif limit == 0:
        yield document.warning(
            "dynamic_batching stands beside max_batch_size 0, so Triton never joins requests",
            "Set max_batch_size, or take the batcher out; our own servers refuse the two.",
            "dynamic_batching",
        )


def _placement(document: Document) -> Iterator[Finding]:
    """Instances and threads, which servers choose differently where they are not written."""
    message = document.message
    if not message.instance_group:
        yield document.warning(
            "there is no instance_group: Triton takes a GPU where it finds one, else "
            f"{_default_count(message)} on the CPU",
            "Write count and kind.",
        )
    for index, group in enumerate(message.instance_group):
        where = ("instance_group", index)
        if group.kind == schema.ModelInstanceGroup.KIND_AUTO:
            yield document.warning("an instance group states no kind", _OF_MACHINES, *where)
        if not group.count:
            yield document.warning(
                f"an instance group states no count, which means {_default_count(message)}",
                "Write the number.",
                *where,
            )
    threads = [k for k in (INTRA_OP_THREADS, INTER_OP_THREADS) if k not in message.parameters]
    if threads and _is_onnx(message):
        yield document.warning(
            f"there is no parameter {' and no '.join(threads)}",
            "Write the numbers: Triton's own backend takes every core for each instance.",
        )


def _default_count(message: schema.ModelConfig) -> str:
    on_gpu = any(
        group.kind == schema.ModelInstanceGroup.KIND_GPU for group in message.instance_group
    )
    if on_gpu:
        return "1 instance for each GPU"
    return "2 instances" if _is_onnx(message) else "1 instance"


def _as_loaded(document: Document) -> Iterator[Finding]:
    """What only shows when the file is read as servers read it."""
    model = document.model
    try:
        config = load_config(document.file)
        _require_warm_up_rows(config)
        list(warm_up_inputs(config, model.folder))
        list(read_stored(model.folder, config))
        require_execution(config.execution)
    except InfersweepError as error:
        # The file's name stands before every finding.
        what = error.what.removeprefix(f"{document.file}").lstrip(": ")
        yield document.error(what, error.hint, *_steps(document, what))
        return
    if config.unserved:
        yield document.warning(
            f"{', '.join(config.unserved)}: our own servers refuse what they do not know",
            "Serve it with triton.",
        )
    served = config.versions.choose(model.versions)
    if not model.versions and model.name not in ENTRIES:
        yield document.error(
            f"no version holds {MODEL_FILE}", f"Put it into {model.folder / '1'}.", "name"
        )
    elif model.versions and not served:
        there = ", ".join(map(str, model.versions))
        yield document.error(
            "version_policy names none of the versions that are here",
            f"There are: {there}.",
            "version_policy",
        )
    for version in served:
        yield from _against_graph(document, config, version)


def _require_warm_up_rows(config: ModelConfig) -> None:
    for item in config.warm_ups:
        if config.batched and item.rows > config.max_batch_size:
            raise ModelError(
                f"warm-up {item.name!r} has {item.rows} rows and max_batch_size is "
                f"{config.max_batch_size}",
                hint="Lower its batch_size.",
            )


def _against_graph(document: Document, config: ModelConfig, version: int) -> Iterator[Finding]:
    try:
        found = differences(inspect(document.model.file_of(version)), config)
    except ModelError as error:
        yield document.error(f"version {version}: {error.what}", error.hint)
        return
    for difference in found:
        yield document.error(
            f"version {version}: {difference}",
            "Mend the configuration, or export the model again.",
            *_steps(document, difference),
        )


_ABOUT = {
    "warm-up": "model_warmup",
    "max_batch_size": "max_batch_size",
    "instance group": "instance_group",
    "KIND_GPU": "instance_group",
    "accelerator": "optimization",
    "optimization": "optimization",
    "inputs are": "input",
    "outputs are": "output",
}
"""Words of a message, and the field that it is about."""


def _steps(document: Document, what: str) -> tuple[str | int, ...]:
    """The way to the field that a message is about; empty when it names none."""
    for index, node in enumerate(document.root.fields.get("parameters", [])):
        if any(key.text in what for key in node.fields.get("key", [])):
            return "parameters", index
    for kind, tensors in (("input", document.message.input), ("output", document.message.output)):
        for index, tensor in enumerate(tensors):
            if f"{kind} {tensor.name!r}" in what:
                return kind, index
    return tuple(field for words, field in _ABOUT.items() if words in what)[:1]
