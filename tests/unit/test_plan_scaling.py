"""Instances on one machine: what each added one brought, and where it ends."""

from __future__ import annotations

import pytest

from loadtest.plan.scaling import scaling_of


def test_the_gain_of_added_instances_ends_at_the_cpus() -> None:
    """One, two and four processes of one thread on two cores."""
    one, two, four = scaling_of({1: 2162.0, 2: 4061.0, 4: 3135.0})
    assert (one.efficiency, one.gain_each) == (1.0, None)
    assert two.efficiency == pytest.approx(0.94, abs=0.005)
    assert four.gain_each is not None
    assert four.gain_each < 0
    assert [point.instances for point in (one, two, four) if point.knee] == [2]


def test_one_number_of_instances_tells_nothing_of_another() -> None:
    assert scaling_of({2: 4061.0}) == ()
