"""Power rails of made-up machines, and which of them together are the machine."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadtest.resources.energy import whole
from loadtest.resources.rails import CounterRail, MeterRail, Rails, find_rails
from tests.fake_machine import FakeMachine


@pytest.fixture
def machine(tmp_path: Path) -> FakeMachine:
    return FakeMachine(tmp_path)


def test_rapl_zones_have_names_and_their_parts_stand_below(machine: FakeMachine) -> None:
    machine.rapl("intel-rapl:0", "package-0", 0)
    machine.rapl("intel-rapl:0:0", "core", 0)
    machine.rapl("intel-rapl:0:1", "dram", 0)
    machine.rapl("intel-rapl:1", "psys", 0)
    machine.rapl("intel-rapl-mmio:0", "package-0", 0)
    names = [rail.name for rail in find_rails(machine.roots)]
    assert names == ["rapl:package-0", "rapl:package-0/core", "rapl:package-0/dram", "rapl:psys"]


def test_energy_is_counted_from_the_first_reading_on(machine: FakeMachine) -> None:
    counter = machine.rapl("intel-rapl:0", "package-0", 7_000_000)
    rails = Rails(find_rails(machine.roots))
    first = rails.read(100.0).value["rapl:package-0"]
    assert (first.joules, first.watts) == (0.0, None)
    counter.write_text("19000000\n")
    second = rails.read(104.0).value["rapl:package-0"]
    assert second.joules == pytest.approx(12.0)
    assert second.watts == pytest.approx(12.0 / 4)


def test_a_counter_that_began_again_at_zero_goes_on(machine: FakeMachine) -> None:
    counter = machine.rapl("intel-rapl:0", "package-0", 9_000_000, range_uj=10_000_000)
    rails = Rails(find_rails(machine.roots))
    rails.read(1.0)
    counter.write_text("500000\n")
    state = rails.read(2.0).value["rapl:package-0"]
    assert state.joules == pytest.approx((10_000_000 - 9_000_000 + 500_000) / 1e6)


@given(st.integers(1, 1000), st.lists(st.floats(0, 0.99), max_size=30), st.floats(0, 0.99))
def test_however_often_a_counter_wraps_all_that_was_used_is_counted(
    range_j: int, shares: list[float], begin: float
) -> None:
    """Less than one turn between two readings, as 1 Hz makes sure of."""
    count = [begin * range_j]
    rail = CounterRail("a", lambda: count[0], lambda: float(range_j))
    rail.read(0.0)
    before = 0.0
    for second, share in enumerate(shares, 1):
        count[0] = (count[0] + share * range_j) % range_j
        now = rail.read(float(second)).joules
        assert now >= before - 1e-9 * range_j
        before = now
    # A share so small that it is lost in rounding may look like a fall of the counter.
    assert before == pytest.approx(sum(shares) * range_j, rel=1e-6, abs=1e-6 * range_j)


def test_readings_close_together_do_not_make_a_power_of_their_own() -> None:
    """A counter that moves once in a while would give nothing, or far too much."""
    count = [0.0]
    rail = CounterRail("a", lambda: count[0])
    rail.read(0.0)
    count[0] = 10.0
    assert rail.read(1.0).watts == 10.0
    count[0] = 15.0
    assert rail.read(1.001).watts == 10.0
    count[0] = 20.0
    assert rail.read(2.0).watts == 10.0


def test_a_counter_that_only_root_may_read_is_told_and_not_zero(
    machine: FakeMachine, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine.rapl("intel-rapl:0", "package-0", 0)
    rails = Rails(find_rails(machine.roots))

    def refuse(path: Path) -> bytes:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr("loadtest.resources.roots.read_file", refuse)
    reading = rails.read(1.0)
    assert reading.value == {}
    why = reading.unmeasurable["rails.rapl:package-0"]
    assert "energy_uj: Permission denied" in why
    assert "root" in why


def test_an_ina3221_gives_volts_times_amperes_of_connected_channels(machine: FakeMachine) -> None:
    folder = machine.ina3221(
        3,
        {
            1: ("VDD_IN", 5000, 2000),
            2: ("NC", 0, 0),
            3: ("VDD_SOC", 5000, 400),
            7: ("sum of shunt voltages", 1, 1),
        },
    )
    machine.write(machine.roots.sys / "class/hwmon/hwmon0/name", "coretemp\n")
    rails = Rails(find_rails(machine.roots))
    first = rails.read(10.0).value
    assert {name: rail.watts for name, rail in first.items()} == pytest.approx(
        {"ina3221:VDD_IN": 5.0 * 2.0, "ina3221:VDD_SOC": 5.0 * 0.4}
    )
    (folder / "curr1_input").write_text("4000\n")
    second = rails.read(13.0).value["ina3221:VDD_IN"]
    assert second.watts == pytest.approx(20.0)
    assert second.joules == pytest.approx(3 * (10.0 + 20.0) / 2)


def test_a_channel_that_is_switched_off_is_told(machine: FakeMachine) -> None:
    folder = machine.ina3221(0, {1: ("VDD_IN", 5000, 2000), 2: ("VDD_SOC", 5000, 1)})
    (folder / "in2_input").unlink()
    reading = Rails(find_rails(machine.roots)).read(1.0)
    assert list(reading.value) == ["ina3221:VDD_IN"]
    assert "in2_input" in reading.unmeasurable["rails.ina3221:VDD_SOC"]


def test_an_older_jetson_tells_milliwatts(machine: FakeMachine) -> None:
    folder = machine.ina3221_before_hwmon({"POM_5V_IN": 4500, "POM_5V_GPU": 1200})
    rails = Rails(find_rails(machine.roots))
    assert rails.read(0.0).value["ina3221:POM_5V_IN"].watts == pytest.approx(4.5)
    (folder / "in_power1_input").write_text("not a number\n")
    assert "no number" in rails.read(1.0).unmeasurable["rails.ina3221:POM_5V_GPU"]


def test_a_meter_is_summed_up_also_over_readings_that_failed() -> None:
    watts = [8.0]
    rail = MeterRail("a", lambda: watts[0])
    rail.read(0.0)
    watts[0] = 16.0
    assert rail.read(10.0).joules == 10 * (8.0 + 16.0) / 2


def test_a_machine_without_a_sensor_says_so(machine: FakeMachine) -> None:
    reading = Rails(find_rails(machine.roots)).read(0.0)
    assert reading.value == {}
    assert "no RAPL" in reading.unmeasurable["rails"]


TWO_SOCKETS = ("rapl:package-0", "rapl:package-1")
ORIN = ("VDD_GPU_SOC", "VDD_CPU_CV", "VIN_SYS_5V0", "VDDQ_VDD2_1V8AO")
XAVIER = ("GPU", "CPU", "SOC", "CV", "VDDRQ", "SYS5V")


def ina(*labels: str) -> tuple[str, ...]:
    return tuple(f"ina3221:{label}" for label in labels)


@pytest.mark.parametrize(
    ("rails", "expected"),
    [
        ((), ()),
        ((*TWO_SOCKETS, "rapl:package-0/core", "rapl:package-0/uncore"), TWO_SOCKETS),
        (
            ("rapl:package-0", "rapl:package-0/core", "rapl:package-0/dram"),
            ("rapl:package-0", "rapl:package-0/dram"),
        ),
        (("rapl:package-0", "rapl:package-0/dram", "rapl:psys"), ("rapl:psys",)),
        (
            ("rapl:package-0", "nvml:gpu0", "nvml:gpu1"),
            ("rapl:package-0", "nvml:gpu0", "nvml:gpu1"),
        ),
        (("rapl:package-0", "rapl:psys", "nvml:gpu0"), ("rapl:package-0", "nvml:gpu0")),
        (("rapl:psys", "nvml:gpu0"), ("rapl:psys",)),
        (("nvml:gpu0",), ("nvml:gpu0",)),
        (ina("VDD_IN", "VDD_CPU_GPU_CV", "VDD_SOC"), ina("VDD_IN")),
        (ina("POM_5V_IN", "POM_5V_GPU", "POM_5V_CPU"), ina("POM_5V_IN")),
        (ina(*ORIN), ina(*ORIN[:3])),
        (ina(*XAVIER), ina(*XAVIER)),
        ((*ina("VDD_IN"), "nvml:gpu0"), ina("VDD_IN")),
        (ina("VDD_SOMETHING"), ()),
    ],
)
def test_no_part_is_added_to_its_whole(rails: tuple[str, ...], expected: tuple[str, ...]) -> None:
    assert set(whole(rails)) == set(expected)
    assert set(whole(rails[::-1])) == set(expected)
