"""Locust's users: each keeps one connection and sends one prepared request after another."""

from __future__ import annotations

import random
import time
from dataclasses import dataclass, field
from typing import ClassVar

import gevent
from locust import User, task
from locust.exception import StopUser

from loadtest.connection import Connection, Reply, prepare
from loadtest.payload import Payload, ReplyChecker
from loadtest.recorder import Recorder
from loadtest.trial import TrialSpec
from serving.protocol import HEADER_LENGTH

_HEADER_LENGTH = HEADER_LENGTH.lower().encode()
_PAUSE_AFTER_ERROR_S = 0.05
_NEVER_NS = 1 << 62


@dataclass
class Session:
    """What all users of this process share; the only mutable state of the generator."""

    spec: TrialSpec
    payloads: list[Payload]
    recorder: Recorder = field(default_factory=Recorder)
    end_ns: int = _NEVER_NS
    users: list[InferenceUser] = field(default_factory=list)

    def replies_of_slowest(self) -> int:
        """Fewest replies that any user has had; 0 until all users are there."""
        if len(self.users) < self.spec.concurrency:
            return 0
        return min(user.replies for user in self.users)


class InferenceUser(User):
    """A closed-loop user: due when its last reply was whole, sent as soon as it can."""

    session: ClassVar[Session]

    def on_start(self) -> None:
        spec = self.session.spec
        self.replies = 0
        self.in_flight_since_ns: int | None = None
        self._connection = Connection(spec.url, timeout_s=spec.timeout_s)
        path = f"/v2/models/{spec.model}/infer"
        self._requests = [
            (
                prepare(spec.url, path, payload.headers, payload.body),
                ReplyChecker(payload, values_every=spec.values_every),
            )
            for payload in self.session.payloads
        ]
        random.Random(f"{spec.seed}/{len(self.session.users)}").shuffle(self._requests)
        self.session.users.append(self)

    @task
    def send_until_the_end(self) -> None:
        session, requests = self.session, self._requests
        turn = 0
        due_ns = time.monotonic_ns()
        while due_ns < session.end_ns:
            due_ns = self._send_one(due_ns, *requests[turn])
            turn = (turn + 1) % len(requests)
        self._connection.close()
        raise StopUser

    def _send_one(self, due_ns: int, request: bytes, checker: ReplyChecker) -> int:
        """Returns when the next request is due."""
        sent_ns = self.in_flight_since_ns = time.monotonic_ns()
        try:
            reply = self._connection.exchange(request)
        except TimeoutError:
            outcome, done_ns = "timeout", time.monotonic_ns()
        except OSError:
            outcome, done_ns = "connection_error", time.monotonic_ns()
        else:
            outcome, done_ns = _judge(reply, checker), reply.done_ns
        self.in_flight_since_ns = None
        self.replies += 1
        self.session.recorder.record(due_ns, sent_ns, done_ns, outcome)
        if outcome == "connection_error":
            # A dead server would otherwise be asked a hundred thousand times a second.
            gevent.sleep(_PAUSE_AFTER_ERROR_S)
            return time.monotonic_ns()
        return done_ns


def _judge(reply: Reply, checker: ReplyChecker) -> str:
    if reply.status != 200:
        return "server_fault_5xx" if reply.status >= 500 else "client_fault_4xx"
    length = reply.headers.get(_HEADER_LENGTH)
    if length is not None and not length.isdigit():
        return "wrong_answer"
    right = checker.is_right(reply.body, None if length is None else int(length))
    return "ok" if right else "wrong_answer"
