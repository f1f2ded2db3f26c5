"""The scheduler's rules from a served ``config.pbtxt``."""

from __future__ import annotations

from dataclasses import dataclass

from google.protobuf import text_format
from tritonclient.grpc import model_config_pb2 as schema

from serving.errors import ModelError
from serving.knobs import knobs_of
from serving.models.execution import parse_execution
from serving.models.scheduling import QueuePolicy, dynamic_batching

_BATCHING_KNOB = "max_batch_size"


@dataclass(frozen=True)
class Scheduling:
    """How one server joins and queues requests.

    Attributes:
        largest: requests in a batch at most; 1 where nothing is joined.
        unplannable: why such a server cannot be simulated; empty where it can.
    """

    largest: int
    instances: int
    preferred: tuple[int, ...]
    delay_ns: int
    queue: QueuePolicy
    unplannable: str = ""


def scheduling_of(label: str, configuration: str) -> Scheduling:
    """What ``label`` makes of the configuration that it served.

    Raises:
        ModelError: it is no ``config.pbtxt``.
    """
    message = _parsed(configuration)
    instances = parse_execution(message, "the profile's configuration").instances
    # Of a server elsewhere the repository here is all that is known; what it measured must fit.
    joins = _BATCHING_KNOB in knobs_of(label) or label.partition(":")[0] == "remote"
    batching = dynamic_batching(message) if joins else None
    if batching is None:
        why = ""
        if not joins and instances > 1:
            why = f"each of the {instances} workers of {label} has a queue of its own"
        return Scheduling(1, instances, (), 0, QueuePolicy(), why)
    # What waits leaves with the largest preferred size as soon as it can, so none is above it.
    largest = max(batching.preferred_batch_sizes, default=max(message.max_batch_size, 1))
    why = ""
    if instances > 1 and largest > 1:
        why = f"batches of {instances} instances cannot be told apart by their replies"
    return Scheduling(
        largest,
        instances,
        batching.preferred_batch_sizes,
        batching.max_queue_delay_ns,
        batching.queue,
        why,
    )


def scheduled(configuration: str, model: str) -> str:
    """The model whose scheduler joins requests: of a pipeline the one behind the front half.

    Raises:
        ModelError: it is no ``config.pbtxt``.
    """
    steps = _parsed(configuration).ensemble_scheduling.step
    return str(steps[-1].model_name) if steps else model


def _parsed(configuration: str) -> schema.ModelConfig:
    message = schema.ModelConfig()
    try:
        text_format.Parse(configuration, message)
    except text_format.ParseError as error:
        raise ModelError(
            f"the configuration in the profile is no config.pbtxt: {error}",
            hint="Measure the profile again.",
        ) from None
    return message
