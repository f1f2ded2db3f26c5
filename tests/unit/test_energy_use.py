"""Inferences per joule and watt-hour, and flight time: each number is derived beside it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadtest.energy_use import (
    flight_time_lost_s,
    flight_time_s,
    inferences_per_joule,
    per_watt_hour,
)

POWERS = st.floats(0.1, 1000)


def test_a_joule_holds_what_one_watt_does_in_a_second() -> None:
    """10 W in one second are 10 J; 50 inferences in it are 5 per joule, 18,000 per watt-hour."""
    gross = inferences_per_joule(50.0, 10.0)
    assert gross == 50 / 10
    assert per_watt_hour(gross) == 5 * 3600


def test_net_counts_what_is_drawn_above_idle() -> None:
    """10 W of which 6 W would be drawn anyway: 50 inferences for 4 J."""
    assert inferences_per_joule(50.0, 10.0, 6.0) == 50 / 4


@pytest.mark.parametrize("watts", [6.0, 5.9])
def test_no_power_above_idle_gives_no_number(watts: float) -> None:
    assert inferences_per_joule(50.0, watts, 6.0) is None
    assert per_watt_hour(None) is None


def test_a_device_shortens_the_flight() -> None:
    """50 Wh at 200 W: 15 min. At 200 + 50 W: 12 min. So 3 min are lost."""
    assert flight_time_s(50.0, 200.0) == pytest.approx(15 * 60)
    assert flight_time_lost_s(200.0, 50.0, 50.0) == pytest.approx(3 * 60)


@given(hover_w=POWERS, battery_wh=POWERS, device_w=POWERS)
def test_never_more_is_lost_than_there_is_and_a_device_without_power_takes_nothing(
    hover_w: float, battery_wh: float, device_w: float
) -> None:
    lost_s = flight_time_lost_s(hover_w, battery_wh, device_w)
    assert 0 <= lost_s < flight_time_s(battery_wh, hover_w)
    assert flight_time_lost_s(hover_w, battery_wh, 0.0) == 0.0


@pytest.mark.parametrize(
    ("hover_w", "battery_wh", "device_w"), [(0.0, 50.0, 5.0), (200.0, 0.0, 5.0), (200.0, 50.0, -1)]
)
def test_what_cannot_fly_is_refused(hover_w: float, battery_wh: float, device_w: float) -> None:
    with pytest.raises(ValueError, match=r"0|nothing"):
        flight_time_lost_s(hover_w, battery_wh, device_w)


def test_powers_below_zero_are_refused() -> None:
    with pytest.raises(ValueError, match="below 0"):
        inferences_per_joule(1.0, -1.0)
