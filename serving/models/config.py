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
from serving.fronthalf import FrontHalf
from serving.models.checks import Check, parse_checks
from serving.models.execution import INTRA_OP_THREADS, Execution, parse_execution
from serving.models.generated import Generated, parse_generated
from serving.models.pipeline import PLATFORM, Pipeline, pipeline_of, states_front_half
from serving.models.scheduling import (
    DynamicBatching,
    VersionPolicy,
    WarmUp,
    datatype_name,
    dynamic_batching,
    unserved,
    version_policy,
    warm_ups,
)


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
class ModelConfig:
    """What ``config.pbtxt`` says, in this project's units.

    Attributes:
        max_batch_size: largest number of rows in one batch; 0 when the model has no batch axis.
        execution: how many copies run side by side, where, and on which providers.
        dynamic_batching: ``None`` when the server must not join requests.
        versions: which of the versions on disk are served.
        warm_ups: requests that are answered before a version is called ready.
        checks: input name to the check of its values that was asked for.
        generated: input name to how its values are made up, where the file says so.
        unserved: fields of the file that our own servers do not know and must not ignore.
        parameters: string parameters, such as ``intra_op_thread_count``.
        front: what it does to pictures when it is the front half of other models.
        pipeline: its two steps when it is an ensemble of a front half and a model.
    """

    name: str
    backend: str
    max_batch_size: int
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    execution: Execution = field(default_factory=Execution)
    dynamic_batching: DynamicBatching | None = None
    versions: VersionPolicy = field(default_factory=VersionPolicy)
    warm_ups: tuple[WarmUp, ...] = ()
    checks: Mapping[str, Check] = field(default_factory=lambda: MappingProxyType({}))
    generated: Mapping[str, Generated] = field(default_factory=lambda: MappingProxyType({}))
    unserved: tuple[str, ...] = ()
    parameters: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    front: FrontHalf | None = None
    pipeline: Pipeline | None = None

    @property
    def batched(self) -> bool:
        """Whether the first axis of every tensor is the batch axis."""
        return self.max_batch_size > 0

    @property
    def instances(self) -> int:
        """How many copies run side by side."""
        return self.execution.instances

    @property
    def accelerator(self) -> str:
        """``cpu`` or ``gpu``."""
        return self.execution.kind

    @property
    def intra_op_threads(self) -> int:
        """Threads inside one operator; 1 unless the configuration says otherwise."""
        return self.execution.intra_op_threads

    @property
    def inter_op_threads(self) -> int:
        """Threads across operators; 1 unless the configuration says otherwise."""
        return self.execution.inter_op_threads

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
            "platform": PLATFORM if self.pipeline else platform,
            "inputs": [self._describe(spec) for spec in self.inputs],
            "outputs": [self._describe(spec) for spec in self.outputs],
        }

    def _describe(self, spec: TensorSpec) -> dict[str, Any]:
        shape = list(self.wire_dims(spec))
        return {"name": spec.name, "datatype": spec.datatype, "shape": shape}


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
    """A copy of ``message`` with its number of instances (on a GPU: on each) and threads stated."""
    placed = schema.ModelConfig()
    placed.CopyFrom(message)
    gpus = sorted({gpu for group in message.instance_group for gpu in group.gpus})
    on_gpu = any(
        group.kind == schema.ModelInstanceGroup.KIND_GPU for group in message.instance_group
    )
    kind = schema.ModelInstanceGroup.KIND_GPU if on_gpu else schema.ModelInstanceGroup.KIND_CPU
    del placed.instance_group[:]
    placed.instance_group.add(count=instances, kind=kind, gpus=gpus)
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
    parameters = {key: value.string_value for key, value in message.parameters.items()}
    inputs = {item.name: _tensor(item) for item in message.input}
    datatypes = {name: spec.datatype for name, spec in inputs.items()}
    pipeline = pipeline_of(message)
    known = {"ensemble_scheduling"} if pipeline else set()
    return ModelConfig(
        name=name,
        backend=message.backend,
        max_batch_size=message.max_batch_size,
        inputs=tuple(_tensor(item) for item in message.input),
        outputs=tuple(_tensor(item) for item in message.output),
        execution=parse_execution(message, where),
        dynamic_batching=dynamic_batching(message),
        versions=version_policy(message),
        warm_ups=warm_ups(message),
        checks=MappingProxyType(parse_checks(parameters, datatypes, where)),
        generated=MappingProxyType(parse_generated(parameters, inputs, where)),
        unserved=tuple(field for field in unserved(message) if field not in known),
        parameters=MappingProxyType(parameters),
        front=_front_half(message, parameters, where),
        pipeline=pipeline,
    )


def _front_half(
    message: schema.ModelConfig, parameters: Mapping[str, str], where: str
) -> FrontHalf | None:
    """``None`` where none is stated."""
    if not states_front_half(message):
        return None
    try:
        (output,) = message.output
        return FrontHalf.from_parameters(parameters, output.dims)
    except ValueError as error:
        raise ModelError(
            f"{where} states no front half: {error}",
            hint="docs/front-half.md says what its parameters mean.",
        ) from None


def _tensor(item: schema.ModelInput | schema.ModelOutput) -> TensorSpec:
    return TensorSpec(item.name, datatype_name(item.data_type), tuple(item.dims))
