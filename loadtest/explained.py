"""What explains a figure: a server's own timings, its starts, the shapes of its response times."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from loadtest.record import Record


class PhaseTotal(Record):
    """Of the requests that passed through one phase of a server."""

    count: int
    ns: int = Field(description="their time in it, added up")


class ServerTimings(Record):
    """What the server counted in one window, by its own clock.

    Phases are ``total``, ``front_half`` (of a pipeline), ``queue``, ``compute_input``, ``compute``
    and ``compute_output``; those that a server does not tell are left out.
    """

    told_by: str = Field(description="the statistics extension, or metrics")
    phases: dict[str, PhaseTotal]
    rows: int = Field(description="of all batches")
    executions: int = Field(description="batches")


class Breakdown(Record):
    """Where the mean response time of right answers went; parts in the order of a request's way.

    From the VALID repeats that have the server's timings; where none has, from all VALID ones.
    """

    mean_response_ms: float
    parts: tuple[tuple[str, float], ...] = Field(description="name and milliseconds")
    adds_up: bool = Field(description="whether the parts exceed the mean by 5% at most")
    gap_share: float = Field(description="what the parts exceed the mean by, as a share of it")
    requests: int = Field(description="right answers behind the mean")
    rows_per_batch: float | None = Field(
        default=None, description="mean over the server's batches; null where it does not tell"
    )
    encode_ns: float | None = Field(
        default=None, description="to encode one request beforehand; in none of the parts"
    )
    notes: tuple[str, ...] = ()


StartState = Literal["as found", "not cached", "cached"]


class Start(Record):
    """One start of a server. Times count from when its process was started.

    Bytes are of the files that the server had mapped or open after an earlier start of the same
    run, as they lay in the page cache before this one.
    """

    backend: str
    repeat: int = Field(description="which start of the backend in the run, from 1")
    state: StartState = Field(description="of the page cache: asked to drop the files, or not")
    ready_s: float
    first_answer_s: float | None = Field(description="null where no right answer came")
    dropped_bytes: int | None = Field(description="that left memory; null where no file was known")
    kept_bytes: int | None = Field(description="that were in memory; null where no file was known")
    notes: tuple[str, ...] = ()


class Spectrum(Record):
    """Response time by quantile at a backend's best point, as far as its samples bound it."""

    level: float
    samples: int
    quantiles: tuple[float, ...]
    values_ms: tuple[float, ...]
    at_least_from: float | None = Field(
        description="quantile from which on the time limit was reached, so the truth is more"
    )


class Heatmap(Record):
    """Requests of one window, by when they were due and how long they took."""

    trial: str = Field(description="the repeat with the median rate at the backend's best point")
    level: float
    column_s: float = Field(description="seconds in one column")
    edges_ms: tuple[float, ...] = Field(description="of the rows, ascending; one more than rows")
    counts: tuple[tuple[int, ...], ...] = Field(description="of each column, from the fastest row")
