"""What one camera frame weighs on the way, by how it is sent."""

from __future__ import annotations

from serving.errors import UsageError
from serving.fronthalf.frames import encoded, frame

WEIGHED = "astronaut"
"""The photograph that stands for what a camera sees: a person in front of things."""
_FLOAT32_BYTES = 4
_WIDEST = 16_384


def frame_bytes(width: int, height: int) -> dict[str, int]:
    """Bytes of one frame by payload kind, without headers.

    ``jpeg`` is measured on a real photograph and varies with what is seen; ``uint8`` and
    ``float32`` are three values for each pixel.

    Raises:
        UsageError: there is no such frame.
    """
    if not 0 < width <= _WIDEST or not 0 < height <= _WIDEST:
        raise UsageError(
            f"a frame of {width} x {height} pixels", hint=f"Give 1 to {_WIDEST} for each."
        )
    values = width * height * 3
    return {
        "jpeg": len(encoded(frame(WEIGHED, width, height))),
        "uint8": values,
        "float32": values * _FLOAT32_BYTES,
    }
