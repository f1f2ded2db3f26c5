"""Locust's part: it decides how many users there are; the generator's engine sends for them."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

import gevent
from locust import LoadTestShape, User, task

from loadtest.generator import Generator
from loadtest.scenarios import ClosedLoop

_A_WHILE_S = 3600.0


class InferenceUser(User):
    """A place in the closed loop. It sends nothing itself, so that nothing here costs latency."""

    generator: ClassVar[Generator]

    def on_start(self) -> None:
        self.generator.set_users(self.generator.users + 1)

    def on_stop(self) -> None:
        self.generator.set_users(self.generator.users - 1)

    @task
    def be_there(self) -> None:
        gevent.sleep(_A_WHILE_S)


class Steps(LoadTestShape):
    """As many users as the level that is being measured needs."""

    def __init__(self, load_of: Callable[[float], object]) -> None:
        super().__init__()
        self._load_of = load_of
        self._users = 0

    def go_to(self, level: float, generators: int) -> int:
        """Ask for the users of ``level``; returns how many. An open loop needs one per process."""
        load = self._load_of(level)
        self._users = load.users if isinstance(load, ClosedLoop) else generators
        return self._users

    def tick(self) -> tuple[int, float]:
        return self._users, float(max(self._users, 1))
