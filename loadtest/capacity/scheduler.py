"""Who serves what, and when: the rules of a simulated fleet, with the servers' own meaning.

A batch leaves as it does in ``serving.batching.queue``, which follows Triton's dynamic batcher:
when it is full or of a preferred size, or when its oldest request has waited for the delay. A
request has one row, and all shapes are equal.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from loadtest.camera_schedule import FramePolicy
from loadtest.capacity.service import ServiceSamples
from serving.errors import UsageError

Balance = Literal["round-robin", "least-outstanding"]


@dataclass(frozen=True)
class Scheduler:
    """The queue and the instances of each replica.

    Attributes:
        max_batch_size: 1 where nothing is joined.
        preferred_batch_sizes: worth leaving with at once.
        max_queue_delay_ns: how long the oldest may wait for company.
        max_queue_size: requests that may wait; 0 for no limit.
        timeout_ns: how long one may wait; 0 for as long as it takes.
        reject: whether a request past its timeout is refused; else it is served after the others.
    """

    max_batch_size: int = 1
    preferred_batch_sizes: tuple[int, ...] = ()
    max_queue_delay_ns: int = 0
    instances: int = 1
    max_queue_size: int = 0
    timeout_ns: int = 0
    reject: bool = True

    def __post_init__(self) -> None:
        if self.max_batch_size < 1 or self.instances < 1:
            raise UsageError(
                f"a scheduler with batches of {self.max_batch_size} and {self.instances} instances",
                hint="Both must be at least 1.",
            )
        if not all(1 <= size <= self.max_batch_size for size in self.preferred_batch_sizes):
            raise UsageError(
                f"preferred batch sizes {self.preferred_batch_sizes} do not fit into batches of "
                f"{self.max_batch_size}",
                hint="Each must lie between 1 and max_batch_size.",
            )
        if min(self.max_queue_delay_ns, self.max_queue_size, self.timeout_ns) < 0:
            raise UsageError(
                "a negative queue delay, queue size or timeout", hint="Give 0 to have none."
            )

    def leaving(self, waiting: int) -> int:
        """How many of so many leave at once, without waiting for the delay."""
        fitting = [size for size in self.preferred_batch_sizes if size <= waiting]
        if fitting:
            return max(fitting)
        return self.max_batch_size if waiting >= self.max_batch_size else 0


@dataclass(frozen=True)
class Frames:
    """What becomes of the frames of a camera that cannot be served at once.

    - ``fifo``: each is served, in order.
    - ``drop-late``: one that is ``deadline_ns`` old when its turn comes is dropped.
    - ``latest-only``: one that waits is replaced by the next of its stream, which takes its place.

    Attributes:
        in_order: a stream's next frame is sent when the one before it was answered, as in the
            ``streams`` scenario; without it frames of one stream may overtake each other.
        in_queue: the policy also takes frames out of a server's queue, which needs a server that
            does so; without it those that wait at the camera alone, as in the ``cameras`` scenario.
    """

    policy: FramePolicy = "fifo"
    deadline_ns: int = 0
    in_order: bool = True
    in_queue: bool = True

    @classmethod
    def at_camera(cls, policy: FramePolicy, deadline_ns: int, *, in_order: bool = True) -> Frames:
        """As cameras of live load do it; the deadline counts where the policy drops by one."""
        kept_ns = deadline_ns if policy == "drop-late" else 0
        return cls(policy, kept_ns, in_order, in_queue=False)

    def __post_init__(self) -> None:
        if (self.policy == "drop-late") != (self.deadline_ns > 0):
            raise UsageError(
                f"frame policy {self.policy!r} with a deadline of {self.deadline_ns} ns",
                hint="drop-late needs a deadline above 0, the others take none.",
            )


@dataclass(frozen=True)
class Fleet:
    """Equal replicas behind one balancer.

    Attributes:
        balance: ``round-robin`` takes replicas in turn; ``least-outstanding`` the one with the
            fewest requests waiting or in service, of several the one that has had so few for the
            longest.
        frames: for arrivals that belong to streams.

    Raises:
        UsageError: batches may be larger than any measured one, or two rules would drop frames.
    """

    service: ServiceSamples
    scheduler: Scheduler
    replicas: int = 1
    balance: Balance = "round-robin"
    frames: Frames | None = None

    def __post_init__(self) -> None:
        if self.replicas < 1:
            raise UsageError("a fleet without replicas", hint="Give at least 1.")
        self.service.times_ns(self.scheduler.max_batch_size)
        if self.frames and self.frames.policy != "fifo" and self.scheduler.timeout_ns:
            raise UsageError(
                f"frame policy {self.frames.policy!r} beside a queue timeout",
                hint="Let one of the two decide which frames are dropped.",
            )
