"""A typed, frozen view of Triton's ``config.pbtxt``.

The text is parsed with the protobuf schema that ``tritonclient`` ships, so a field means here what
it means to Triton (https://github.com/triton-inference-server/common, ``model_config.proto``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

from google.protobuf import text_format
from tritonclient.grpc import model_config_pb2 as schema

from serving.errors import ModelError

INTRA_OP_THREADS = "intra_op_thread_count"
INTER_OP_THREADS = "inter_op_thread_count"


@dataclass(frozen=True)
class TensorSpec:
    """One input or output as the configuration declares it.

    Attributes:
        datatype: the protocol's name, such as ``FP32`` or ``BYTES``.
        dims: the shape without the batch axis; -1 where the length may vary.
    """

    name: str
    datatype: str
    dims: tuple[int, ...]


@dataclass(frozen=True)
class DynamicBatching:
    """How long a request may wait for company, and which batch sizes are worth waiting for."""

    max_queue_delay_ns: int
    preferred_batch_sizes: tuple[int, ...] = ()


@dataclass(frozen=True)
class ModelConfig:
    """What ``config.pbtxt`` says, in this project's units.

    Attributes:
        max_batch_size: largest number of rows in one batch; 0 when the model has no batch axis.
        instances: how many copies run side by side.
        accelerator: ``cpu`` or ``gpu``.
        dynamic_batching: ``None`` when the server must not join requests.
        parameters: string parameters, such as ``intra_op_thread_count``.
    """

    name: str
    backend: str
    max_batch_size: int
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    instances: int = 1
    accelerator: str = "cpu"
    dynamic_batching: DynamicBatching | None = None
    parameters: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))

    @property
    def batched(self) -> bool:
        """Whether the first axis of every tensor is the batch axis."""
        return self.max_batch_size > 0

    @property
    def intra_op_threads(self) -> int:
        """Threads inside one operator; 1 unless the configuration says otherwise."""
        return self._thread_count(INTRA_OP_THREADS)

    @property
    def inter_op_threads(self) -> int:
        """Threads across operators; 1 unless the configuration says otherwise."""
        return self._thread_count(INTER_OP_THREADS)

    @property
    def threads(self) -> int:
        """All inference threads together: instances times threads inside an operator."""
        return self.instances * self.intra_op_threads

    def wire_dims(self, spec: TensorSpec) -> tuple[int, ...]:
        """The shape of ``spec`` as it travels, with a leading -1 when the model is batched."""
        return (-1, *spec.dims) if self.batched else spec.dims

    def metadata(self, versions: Sequence[int], platform: str) -> dict[str, Any]:
        """The protocol's answer to a model metadata request, shapes as they travel."""
        return {
            "name": self.name,
            "versions": [str(version) for version in versions],
            "platform": platform,
            "inputs": [self._describe(spec) for spec in self.inputs],
            "outputs": [self._describe(spec) for spec in self.outputs],
        }

    def _describe(self, spec: TensorSpec) -> dict[str, Any]:
        shape = list(self.wire_dims(spec))
        return {"name": spec.name, "datatype": spec.datatype, "shape": shape}

    def _thread_count(self, key: str) -> int:
        text = self.parameters.get(key, "1")
        if not text.isdecimal() or int(text) < 1:
            raise ModelError(
                f"model {self.name!r}: parameter {key} is {text!r} in config.pbtxt",
                hint="Write a whole number of 1 or more; 0 would let the runtime use every core.",
            )
        return int(text)


def load_config(path: Path) -> ModelConfig:
    """Read one ``config.pbtxt``.

    Raises:
        ModelError: the file is missing, is not valid text, or contradicts itself.
    """
    return _view(load_message(path), path)


def load_message(path: Path) -> schema.ModelConfig:
    """Read ``config.pbtxt`` as the protobuf message itself.

    Raises:
        ModelError: the file is missing or is not valid protobuf text.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise ModelError(
            f"{path} does not exist", hint="`infersweep models list` shows the known models."
        ) from None
    try:
        return text_format.Parse(text, schema.ModelConfig())
    except text_format.ParseError as error:
        raise ModelError(
            f"{path} cannot be read: line {error}",
            hint="Mend that line; the format is Triton's model configuration.",
        ) from None


def with_placement(
    message: schema.ModelConfig, *, instances: int, intra_op_threads: int
) -> schema.ModelConfig:
    """A copy of ``message`` with its number of CPU instances and threads stated."""
    placed = schema.ModelConfig()
    placed.CopyFrom(message)
    del placed.instance_group[:]
    placed.instance_group.add(count=instances, kind=schema.ModelInstanceGroup.KIND_CPU)
    placed.parameters[INTRA_OP_THREADS].string_value = str(intra_op_threads)
    return placed


def render(message: schema.ModelConfig) -> str:
    """The message as ``config.pbtxt`` text."""
    return text_format.MessageToString(message)


def _view(message: schema.ModelConfig, path: Path) -> ModelConfig:
    name = message.name or path.parent.name
    where = f"{path}"
    if name != path.parent.name:
        raise ModelError(
            f"{where} names its model {name!r} but lies in folder {path.parent.name!r}",
            hint="Triton wants both to be the same.",
        )
    if message.HasField("dynamic_batching") and message.max_batch_size < 1:
        raise ModelError(
            f"{where} asks for dynamic batching with max_batch_size {message.max_batch_size}",
            hint="Such a model is never batched: set max_batch_size, or take the batcher out.",
        )
    preferred = tuple(message.dynamic_batching.preferred_batch_size)
    if any(size > message.max_batch_size for size in preferred):
        raise ModelError(
            f"{where} prefers batches of {max(preferred)} above max_batch_size "
            f"{message.max_batch_size}",
            hint="Raise max_batch_size or lower preferred_batch_size.",
        )
    groups = list(message.instance_group)
    gpu = any(group.kind == schema.ModelInstanceGroup.KIND_GPU for group in groups)
    return ModelConfig(
        name=name,
        backend=message.backend,
        max_batch_size=message.max_batch_size,
        inputs=tuple(_tensor(item) for item in message.input),
        outputs=tuple(_tensor(item) for item in message.output),
        instances=sum(max(1, group.count) for group in groups) or 1,
        accelerator="gpu" if gpu else "cpu",
        dynamic_batching=DynamicBatching(
            message.dynamic_batching.max_queue_delay_microseconds * 1_000, preferred
        )
        if message.HasField("dynamic_batching")
        else None,
        parameters=MappingProxyType(
            {key: value.string_value for key, value in message.parameters.items()}
        ),
    )


def _tensor(item: schema.ModelInput | schema.ModelOutput) -> TensorSpec:
    name = schema.DataType.Name(item.data_type).removeprefix("TYPE_")
    return TensorSpec(item.name, "BYTES" if name == "STRING" else name, tuple(item.dims))
