"""What was delivered of the frames of streams: a part of the schema of results."""

from __future__ import annotations

from pydantic import Field

from loadtest.record import Record


class Delivered(Record):
    """Of one stream, or of all together. A frame's age is counted from when it was due."""

    name: str = Field(description="of the stream; empty for all together")
    frames: int = Field(description="that were due in the window")
    delivered_fps: float = Field(description="right answers in the window per second")
    age_p50_ms: float | None = Field(description="of delivered frames; null for too few")
    age_p99_ms: float | None = Field(description="of delivered frames; null for too few")
    missed: int | None = Field(
        description="frames not delivered by the deadline, late or never; null without one"
    )
    dropped: int = Field(description="frames that were never delivered")
    dropped_by_policy: int = Field(description="of these, those that their camera gave up")
    longest_gap_ms: float = Field(
        description="between answers of one stream, from the window's start to its end"
    )


class FramesRecord(Record):
    """Of one window, or of several repeats: counts add up, ages are of all frames together."""

    policy: str
    deadline_ms: float | None = Field(description="how old a frame may be; null without a deadline")
    together: Delivered = Field(description="its gap is the longest of any stream")
    streams: tuple[Delivered, ...]
