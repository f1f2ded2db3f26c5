"""The Python engine: gevent's greenlets over any ``Caller``. For TLS and gRPC, and without a
compiler; the native engine is several times as fast.
"""

from __future__ import annotations

import random
import time
from collections import defaultdict, deque
from collections.abc import Iterator
from dataclasses import replace
from itertools import cycle
from pathlib import Path
from urllib.parse import urlsplit

import gevent
import numpy as np

from loadtest.engine.base import (
    BATCH,
    OUTCOME,
    PAUSE_AFTER_ERROR_S,
    RECORD,
    Choice,
    Column,
    Records,
    Target,
)
from loadtest.engine.callers import Answer, Caller, GrpcCaller, HttpCaller
from loadtest.engine.timer import Timer

_NEVER_NS = 1 << 62
_IDLE_S = 0.002
_ROOM = 1 << 17
_KILLED = Answer("unfinished", 0, 0, 0)


class PythonEngine:
    def __init__(self, target: Target, ca_file: Path | None = None) -> None:
        grpc = urlsplit(target.url).scheme in ("grpc", "grpcs")
        self._make = (GrpcCaller if grpc else HttpCaller, target, ca_file)
        self._target = target
        self._samples = len(target.payloads) // (target.streams or 1)
        self._done: list[tuple[int, ...]] = []
        self._users: list[gevent.Greenlet] = []
        self._wanted = 0
        self._remaining, self._fixed_due_ns, self._end_ns = -1, -1, _NEVER_NS
        self._in_flight: dict[int, tuple[int, int, int, int]] = {}
        self._tickets = 0
        self._queries = 0
        self._arrivals: deque[tuple[int, int]] = deque()
        self._idle: list[Caller] = []
        self._callers = 0
        self._streams: dict[int, Caller] = {}
        self._sending: set[int] = set()
        self._awaiting_reply: set[int] = set()
        self._held: defaultdict[int, deque[tuple[int, int, int]]] = defaultdict(deque)
        self._dispatcher = gevent.spawn(self._dispatch)

    def _caller(self, stream: int = 0) -> Caller:
        """One for all payloads, or for those of ``stream`` where there are streams."""
        kind, target, ca_file = self._make
        self._callers += 1
        first = stream * self._samples
        own = target.payloads[first : first + self._samples] if target.streams else target.payloads
        return kind(replace(target, payloads=own), ca_file)

    def set_users(self, users: int, *, together: bool = False) -> None:
        self._wanted = users = min(users, self._target.streams or users)
        if together:
            if not self._users and users:
                self._users.append(gevent.spawn(self._queries_of, users))
            return
        while len(self._users) < users:
            self._users.append(gevent.spawn(self._user, len(self._users)))
        del self._users[users:]

    def set_limit(self, requests: int, due_ns: int) -> None:
        self._remaining, self._fixed_due_ns = requests, due_ns

    def set_end(self, end_ns: int) -> None:
        self._end_ns = end_ns

    def schedule(self, due_ns: Column, payloads: Choice) -> int:
        taken = min(len(due_ns), _ROOM - len(self._arrivals))
        self._arrivals.extend(zip(due_ns[:taken].tolist(), payloads[:taken].tolist(), strict=True))
        return taken

    def give_up(self) -> None:
        for held in self._held.values():
            for arrival in held:
                self._miss(*arrival, "not_sent")
            held.clear()

    def drain(self) -> Records:
        done, self._done = self._done[:BATCH], self._done[BATCH:]
        return np.array(done, RECORD)

    @property
    def busy(self) -> int:
        held = sum(map(len, self._held.values()))
        return len(self._in_flight) + len(self._arrivals) + held

    @property
    def lost(self) -> int:
        return 0

    @property
    def unchecked(self) -> int:
        return 0

    def stop(self) -> None:
        self._wanted = 0
        gevent.killall([*self._users, self._dispatcher])
        now_ns = time.monotonic_ns()
        for due, sent, payload, query in self._in_flight.values():
            self._record(due, sent, payload, query, Answer("unfinished", 0, 0, now_ns))
        self._in_flight.clear()
        self.give_up()

    def _next_due(self, due_ns: int) -> int | None:
        """When the next closed-loop request is due; ``None`` when there is to be none."""
        fixed = self._fixed_due_ns
        due_ns = due_ns if fixed < 0 else fixed
        if due_ns >= self._end_ns or self._remaining == 0:
            return None
        if self._remaining > 0:
            self._remaining -= 1
        return due_ns

    def _await_due(self, due_ns: int, number: int) -> int | None:
        """When the next request of user ``number`` is due; ``None`` when the user is to go."""
        while number < self._wanted:
            due = self._next_due(due_ns)
            if due is not None:
                return due
            gevent.sleep(_IDLE_S)
            due_ns = time.monotonic_ns()
        return None

    def _user(self, number: int) -> None:
        streams = self._target.streams
        caller = self._caller(number if streams else 0)
        choices = self._in_order(number) if streams else self._at_random(number)
        due_ns = time.monotonic_ns()
        while (due := self._await_due(due_ns, number)) is not None:
            self._queries += 1
            answer = self._send(caller, due, next(choices), self._queries)
            due_ns = answer.done_ns
            if answer.outcome == "connection_error":
                gevent.sleep(PAUSE_AFTER_ERROR_S)
                due_ns = time.monotonic_ns()
        caller.close()

    def _at_random(self, number: int) -> Iterator[int]:
        choose = random.Random(f"{self._target.seed}/{number}").randrange
        while True:
            yield choose(len(self._target.payloads))

    def _in_order(self, stream: int) -> Iterator[int]:
        return cycle(range(stream * self._samples, (stream + 1) * self._samples))

    def _queries_of(self, samples: int) -> None:
        """Multi-stream: the next query is due when all requests of the last are done."""
        callers = [self._caller() for _ in range(samples)]
        choose = random.Random(self._target.seed).randrange
        due_ns = time.monotonic_ns()
        while (due := self._await_due(due_ns, 0)) is not None:
            self._queries += 1
            sent = [
                gevent.spawn(
                    self._send, caller, due, choose(len(self._target.payloads)), self._queries
                )
                for caller in callers
            ]
            answers = [one.get() for one in gevent.joinall(sent)]
            due_ns = max(answer.done_ns for answer in answers)
            if any(answer.outcome == "connection_error" for answer in answers):
                gevent.sleep(PAUSE_AFTER_ERROR_S)
                due_ns = time.monotonic_ns()
        for caller in callers:
            caller.close()

    def _dispatch(self) -> None:
        timer = Timer()
        while True:
            if not self._arrivals:
                gevent.sleep(_IDLE_S)
                continue
            due_ns, payload = self._arrivals[0]
            # The end may be moved on until it has come; from then on nothing is left to wait for.
            timer.sleep_until(min(due_ns, self._end_ns))
            if due_ns >= self._end_ns <= time.monotonic_ns():
                self._arrivals.clear()
                continue
            if due_ns > time.monotonic_ns():
                continue
            self._arrivals.popleft()
            self._queries += 1
            if self._target.streams:
                self._send_in_turn(due_ns, payload, self._queries)
            elif self._idle or self._callers < self._target.connections:
                caller = self._idle.pop() if self._idle else self._caller()
                gevent.spawn(self._send_and_return, caller, due_ns, payload, self._queries)
            else:
                self._miss(due_ns, payload, self._queries, "not_sent")

    def _miss(self, due_ns: int, payload: int, query: int, outcome: str) -> None:
        now_ns = time.monotonic_ns()
        self._record(due_ns, now_ns, payload, query, Answer(outcome, 0, 0, now_ns))

    def _send_in_turn(self, due_ns: int, payload: int, query: int) -> None:
        """After all that its stream was given before, as far as its policy keeps them."""
        stream = payload // self._samples
        held = self._held[stream]
        # While no reply is awaited the first of them is about to be sent.
        leaving = stream not in self._awaiting_reply
        if self._target.policy == "latest-only" and len(held) > leaving:
            self._miss(*held.pop(), "dropped")
        held.append((due_ns, payload, query))
        if stream not in self._sending:
            self._sending.add(stream)
            gevent.spawn(self._send_held, stream)

    def _send_held(self, stream: int) -> None:
        if stream not in self._streams:
            self._streams[stream] = self._caller(stream)
        held = self._held[stream]
        drop_after_ns = self._target.drop_after_ns
        while held:
            due_ns, payload, query = held.popleft()
            waited = stream in self._awaiting_reply
            if waited and drop_after_ns and time.monotonic_ns() - due_ns >= drop_after_ns:
                self._miss(due_ns, payload, query, "dropped")
                continue
            self._awaiting_reply.add(stream)
            self._send(self._streams[stream], due_ns, payload, query)
        self._awaiting_reply.discard(stream)
        self._sending.remove(stream)

    def _send_and_return(self, caller: Caller, due_ns: int, payload: int, query: int) -> None:
        self._send(caller, due_ns, payload, query)
        self._idle.append(caller)

    def _send(self, caller: Caller, due_ns: int, payload: int, query: int) -> Answer:
        sent_ns = time.monotonic_ns()
        self._tickets += 1
        ticket = self._tickets
        self._in_flight[ticket] = (due_ns, sent_ns, payload, query)
        answer = caller.call(payload % self._samples)
        if self._in_flight.pop(ticket, None) is None:
            return _KILLED
        self._record(due_ns, sent_ns, payload, query, answer)
        return answer

    def _record(self, due_ns: int, sent_ns: int, payload: int, query: int, answer: Answer) -> None:
        self._done.append(
            (
                *(due_ns, sent_ns, answer.first_byte_ns, answer.done_ns, query, 0, 0, -1),
                *(payload, answer.status, OUTCOME[answer.outcome], 0),
            )
        )
