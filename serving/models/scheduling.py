"""Versions, batching, queues and warm-up as ``config.pbtxt`` states them, with Triton's meaning.

Source: https://github.com/triton-inference-server/common, ``model_config.proto``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from tritonclient.grpc import model_config_pb2 as schema


@dataclass(frozen=True)
class QueuePolicy:
    """How long and how many may wait.

    Attributes:
        max_size: requests that may wait; 0 for no limit of the model's own.
        timeout_ns: how long one may wait; 0 for as long as it takes.
        reject: whether a request past its timeout is refused; else it is served after the others.
        may_shorten: whether a request may bring a shorter timeout of its own.
    """

    max_size: int = 0
    timeout_ns: int = 0
    reject: bool = True
    may_shorten: bool = False


@dataclass(frozen=True)
class DynamicBatching:
    """How long a request may wait for company, and which batch sizes are worth waiting for.

    Attributes:
        preserve_ordering: whether answers leave in the order in which requests came.
    """

    max_queue_delay_ns: int
    preferred_batch_sizes: tuple[int, ...] = ()
    preserve_ordering: bool = False
    queue: QueuePolicy = field(default_factory=QueuePolicy)


@dataclass(frozen=True)
class VersionPolicy:
    """Which of the versions on disk are served: the ``latest`` few, ``specific`` ones, or all."""

    latest: int | None = 1
    specific: tuple[int, ...] = ()

    def choose(self, versions: Sequence[int]) -> tuple[int, ...]:
        """The versions to serve, oldest first."""
        if self.specific:
            return tuple(sorted(set(versions) & set(self.specific)))
        ordered = sorted(versions)
        return tuple(ordered if self.latest is None else ordered[-self.latest :])


@dataclass(frozen=True)
class WarmUpInput:
    """Attributes: ``source`` is ``zero``, ``random``, or the name of a file under ``warmup/``."""

    name: str
    datatype: str
    dims: tuple[int, ...]
    source: str


@dataclass(frozen=True)
class WarmUp:
    """Requests that each instance answers before its version is called ready."""

    name: str
    rows: int
    count: int
    inputs: tuple[WarmUpInput, ...]


def dynamic_batching(message: schema.ModelConfig) -> DynamicBatching | None:
    """``None`` when the server must not join requests."""
    if not message.HasField("dynamic_batching"):
        return None
    batching = message.dynamic_batching
    policy = batching.default_queue_policy
    return DynamicBatching(
        batching.max_queue_delay_microseconds * 1_000,
        tuple(sorted(batching.preferred_batch_size)),
        batching.preserve_ordering,
        QueuePolicy(
            policy.max_queue_size,
            policy.default_timeout_microseconds * 1_000,
            policy.timeout_action == schema.ModelQueuePolicy.REJECT,
            policy.allow_timeout_override,
        ),
    )


def version_policy(message: schema.ModelConfig) -> VersionPolicy:
    """The newest one unless the configuration says otherwise."""
    policy = message.version_policy
    match policy.WhichOneof("policy_choice"):
        case "all":
            return VersionPolicy(latest=None)
        case "specific":
            return VersionPolicy(specific=tuple(policy.specific.versions))
        case "latest":
            return VersionPolicy(latest=max(1, policy.latest.num_versions))
    return VersionPolicy()


def warm_ups(message: schema.ModelConfig) -> tuple[WarmUp, ...]:
    """Every ``model_warmup`` of the configuration."""
    return tuple(
        WarmUp(
            item.name,
            max(1, item.batch_size),
            max(1, item.count),
            tuple(
                WarmUpInput(name, datatype_name(given.data_type), tuple(given.dims), _source(given))
                for name, given in sorted(item.inputs.items())
            ),
        )
        for item in message.model_warmup
    )


def unserved(message: schema.ModelConfig) -> Iterator[str]:
    """Fields that change what a model answers or when, and that only Triton itself knows."""
    choice = message.WhichOneof("scheduling_choice")
    if choice not in (None, "dynamic_batching"):
        yield str(choice)
    stated = {
        "dynamic_batching.priority_levels": message.dynamic_batching.priority_levels,
        "response_cache": message.response_cache.enable,
        "model_transaction_policy.decoupled": message.model_transaction_policy.decoupled,
        "batch_input": message.batch_input,
        "batch_output": message.batch_output,
    }
    for group in message.instance_group:
        stated["instance_group.passive"] = group.passive
        stated["instance_group.secondary_devices"] = group.secondary_devices
        stated["instance_group.rate_limiter"] = group.HasField("rate_limiter")
        stated["instance_group.host_policy"] = group.host_policy
    for tensor in (*message.input, *message.output):
        stated[f"reshape of {tensor.name!r}"] = tensor.HasField("reshape")
        stated[f"is_shape_tensor of {tensor.name!r}"] = tensor.is_shape_tensor
    for given in message.input:
        stated[f"optional of {given.name!r}"] = given.optional
    yield from (name for name, value in stated.items() if value)


def datatype_name(number: int) -> str:
    """The protocol's name of a datatype of the configuration."""
    name = schema.DataType.Name(number).removeprefix("TYPE_")
    return "BYTES" if name == "STRING" else name


def _source(given: schema.ModelWarmup.Input) -> str:
    match given.WhichOneof("input_data_type"):
        case "random_data":
            return "random"
        case "input_data_file":
            return str(given.input_data_file)
    return "zero"
