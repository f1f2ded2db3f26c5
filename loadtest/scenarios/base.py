"""What a scenario is: a name, a level that can be swept, parameters, and the load they make."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from pydantic import BaseModel, ConfigDict

from loadtest.schedule import Times


class Parameters(BaseModel):
    """Settings of a scenario besides its level; unknown names are refused."""

    model_config = ConfigDict(frozen=True, extra="forbid")


@dataclass(frozen=True)
class ClosedLoop:
    """So many requests in flight, each due when the one before it was answered.

    Attributes:
        together: the users' requests form one query; the next is due when all are answered.
        requests: all due at the start, and no more; the window ends with the last answer.
    """

    users: int
    together: bool = False
    requests: int | None = None


@dataclass(frozen=True)
class OpenLoop:
    """Requests due at moments that no answer can delay.

    Attributes:
        arrivals: from a random generator to ascending times, in chunks.
        stationary: whether any stretch is like any other, so that warm-up may be cut off its
            beginning and steadiness asked of the rest.
        length_s: where the scenario ends by itself; ``None`` when the duration is the user's.
        streams: the i-th arrival belongs to stream ``i % streams``, which sends one request at
            a time; 0 when arrivals belong to nobody.
    """

    arrivals: Callable[[np.random.Generator], Iterator[Times]]
    stationary: bool = True
    length_s: float | None = None
    streams: int = 0


Load = ClosedLoop | OpenLoop


@dataclass(frozen=True)
class Scenario:
    """One way in which requests come.

    Attributes:
        level_name: what the level counts, with its unit: ``users``, ``requests/s``.
        levels: the levels of a run that names none.
        duration_s: length of one window of a run that names none.
        whole_levels: whether only whole numbers make sense.
        in_order: each of so many streams as the level says sends the samples in their order.
        make: from level, parameters and window length to the load.
            Raises UsageError for parameters that do not go together.
    """

    name: str
    summary: str
    level_name: str
    levels: tuple[float, ...]
    make: Callable[[float, Any, float], Load]
    parameters: type[Parameters] = Parameters
    whole_levels: bool = False
    in_order: bool = False
    duration_s: float = 10.0
