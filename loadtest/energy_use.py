"""What energy comes to for whoever carries the battery. Pure arithmetic.

One joule is one watt for one second, so 3600 J are one watt-hour.
"""

from __future__ import annotations

JOULES_PER_WH = 3600.0


def inferences_per_joule(
    rate_rps: float, watts: float, idle_w: float | None = None
) -> float | None:
    """``rate_rps / (watts - idle_w)``: gross where ``idle_w`` is ``None``, else net of idle.

    ``rate_rps`` counts inferences. ``None`` where the load drew no more than idle: that is within
    the noise of the meter, and no infinite efficiency.

    Raises:
        ValueError: a rate or a power is below 0.
    """
    if rate_rps < 0 or watts < 0 or (idle_w or 0.0) < 0:
        raise ValueError("rate and power cannot be below 0")
    drawn_w = watts - (idle_w or 0.0)
    return rate_rps / drawn_w if drawn_w > 0 else None


def per_watt_hour(per_joule: float | None) -> float | None:
    """``3600 * per_joule``."""
    return None if per_joule is None else JOULES_PER_WH * per_joule


def flight_time_s(battery_wh: float, drawn_w: float) -> float:
    """``3600 * battery_wh / drawn_w``: constant power down to the last joule.

    Raises:
        ValueError: a power or the battery is not above 0.
    """
    if battery_wh <= 0 or drawn_w <= 0:
        raise ValueError("battery and power must be above 0")
    return JOULES_PER_WH * battery_wh / drawn_w


def flight_time_lost_s(hover_w: float, battery_wh: float, device_w: float) -> float:
    """``3600 * battery_wh * (1 / hover_w - 1 / (hover_w + device_w))``.

    What the device takes from the flight by its power alone, not by its weight.

    Raises:
        ValueError: hover power or battery is not above 0, or the device's power is below 0.
    """
    if device_w < 0:
        raise ValueError("a device cannot draw less than nothing")
    return flight_time_s(battery_wh, hover_w) - flight_time_s(battery_wh, hover_w + device_w)
