"""What every load engine does: keep time while requests go out, and hand over what happened.

An engine knows nothing of scenarios. A closed loop is a number of users; an open loop is a list of
moments. Each request that was due comes back as exactly one record.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from loadtest.camera_schedule import FramePolicy
from loadtest.payload import Payload
from loadtest.results import OUTCOMES

RECORD = np.dtype(
    [
        ("due", "i8"),
        ("sent", "i8"),
        ("first_byte", "i8"),
        ("done", "i8"),
        ("query", "u8"),
        ("body", "u8"),
        ("body_length", "u4"),
        ("json_length", "i4"),
        ("payload", "u4"),
        ("status", "u2"),
        ("outcome", "u1"),
        ("checked", "u1"),
    ]
)
"""One request. Times are ``time.monotonic_ns``; ``outcome`` indexes ``OUTCOMES``; ``query`` is
shared by the requests of one multi-stream query. The native engine writes this very layout."""

Records = npt.NDArray[Any]
Column = npt.NDArray[np.int64]
Choice = npt.NDArray[np.uint32]

PENDING, UNCHECKED = 2, 3
"""Values of ``checked``: Python must judge the answer; too many were waiting to be judged. Below
them: every byte, or shape and length, equal a reply that was found right."""

OUTCOME = {name: number for number, name in enumerate(OUTCOMES)}
PAUSE_AFTER_ERROR_S = 0.05
"""A dead server would otherwise be asked a hundred thousand times a second."""


BATCH = 1024
"""So few that counting them takes a fraction of a millisecond, which a request may have to wait."""


@dataclass(frozen=True)
class Target:
    """One model on one server, and how it is spoken to.

    Attributes:
        url: ``http``, ``https`` or ``grpc`` address.
        headers: sent with every request, such as those for authentication.
        streams: ``payloads`` are so many lists of equal length, one after the other; each has a
            connection of its own that sends one request at a time. 0: any connection sends any.
        policy: what becomes of an arrival whose stream waits for a reply.
        deadline_ns: ``drop-late`` drops one that is so old when its turn comes.
        connections: most connections that may be open at once; one per stream where there are.
        values_every: compare the values of every n-th reply whose bytes are new; 0 for never.
    """

    url: str
    model: str
    payloads: tuple[Payload, ...]
    timeout_s: float = 10.0
    streams: int = 0
    policy: FramePolicy = "fifo"
    deadline_ns: int | None = None
    connections: int = 1024
    values_every: int = 20
    seed: int = 1
    headers: Mapping[str, str] = field(default_factory=dict)

    @property
    def drop_after_ns(self) -> int | None:
        """The age at which a frame whose turn comes is dropped."""
        return self.deadline_ns if self.policy == "drop-late" else None


class Engine(Protocol):
    """Sends to one ``Target``. Calls return at once; the sending happens beside them."""

    def set_users(self, users: int, *, together: bool = False) -> None:
        """Closed loop: each user is due when its last reply was whole; ``together``, when the last
        replies of all users were. A user that is a stream goes through its own list in order.
        """
        ...

    def set_limit(self, requests: int, due_ns: int) -> None:
        """At most this many closed-loop requests from now on, all due at ``due_ns``."""
        ...

    def schedule(self, due_ns: Column, payloads: Choice) -> int:
        """Append arrivals of an open loop, in order; returns how many there was room for.

        One that is due while its stream waits for a reply is sent after it, and still due then;
        or it is dropped, as the target's policy says.
        """
        ...

    def set_end(self, end_ns: int) -> None:
        """Nothing that is due at or after this moment is sent."""
        ...

    def give_up(self) -> None:
        """What waits for its stream's reply becomes ``not_sent``, soon."""
        ...

    def drain(self) -> Records:
        """Up to ``BATCH`` records of what has finished, with their final outcomes."""
        ...

    @property
    def busy(self) -> int:
        """Requests in flight and arrivals that are not due yet."""
        ...

    @property
    def lost(self) -> int:
        """Records that could not be kept; any makes a run INVALID."""
        ...

    @property
    def unchecked(self) -> int:
        """Replies that came faster than they could be checked; any makes a run INVALID."""
        ...

    def stop(self) -> None:
        """End at once: what is in flight becomes ``unfinished`` and waits in ``drain``."""
        ...
