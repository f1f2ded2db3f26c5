"""What a device tells of itself, from a faked Jetson Orin and from folders that lack a sensor."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from loadtest.resources.board import read_board, read_memory, read_power_mode
from loadtest.resources.device import Device
from loadtest.resources.energy import whole
from loadtest.resources.record import CoolerState, ResourceUse, Sample, ZoneState
from loadtest.resources.roots import UnreadableError, device_roots
from loadtest.resources.sampler import Sampler
from loadtest.resources.tegrastats import STALE_S, TegraLog, parse_line
from loadtest.resources.window import use_over
from serving.errors import UsageError
from tests.fake_jetson import TEGRASTATS, FakeJetson
from tests.fake_machine import FakeNvml

NEVER_S = 3600.0
CLOCK, GPU = "cpu:policy0", "17000000.gpu"


@pytest.fixture
def jetson(tmp_path: Path) -> FakeJetson:
    return FakeJetson(tmp_path / "device")


def test_a_clock_has_its_limit_and_what_the_hardware_can_do(jetson: FakeJetson) -> None:
    """The power mode holds the CPU at 1.344 of 1.728 GHz, the GPU at 918 of 1020 MHz."""
    state = Device(device_roots(jetson.root)).read().value
    cpu, gpu = state.clocks[CLOCK], state.clocks[f"device:{GPU}"]
    assert (cpu.hz, cpu.limit_hz, cpu.rated_hz) == (1_344e6, 1_344e6, 1_728e6)
    assert (gpu.hz, gpu.limit_hz, gpu.rated_hz) == (918e6, 918e6, 1_020e6)


def test_zones_coolers_and_counters_have_the_names_that_the_board_gives_them(
    jetson: FakeJetson,
) -> None:
    state = Device(device_roots(jetson.root)).read().value
    assert {name: zone.celsius for name, zone in state.zones.items()} == {
        "cpu-thermal": 45.0,
        "gpu-thermal": 44.5,
    }
    assert {name: (c.state, c.highest) for name, c in state.coolers.items()} == {
        "cpu-throttle-alert": (0, 1),
        "pwm-fan": (2, 3),
    }
    assert {n: t.events for n, t in state.throttles.items()} == {
        "soctherm instantaneous over-current": 0
    }


def test_several_of_one_type_are_told_apart(jetson: FakeJetson) -> None:
    for number in (0, 1):
        jetson.write(f"sys/class/thermal/thermal_zone{number}/type", "acpitz\n")
    state = Device(device_roots(jetson.root)).read().value
    assert list(state.zones) == ["acpitz/0", "acpitz/1"]


def test_an_integrated_gpu_tells_load_and_clock_and_the_rest_is_told_elsewhere(
    jetson: FakeJetson,
) -> None:
    reading = Device(device_roots(jetson.root)).read()
    gpu = reading.value.gpus[GPU]
    assert (gpu.utilisation, gpu.sm_clock_hz) == (pytest.approx(0.812), 918e6)
    assert (gpu.memory_bytes, gpu.temperature_celsius) == (None, None)
    assert "shares" in reading.unmeasurable[f"gpus.{GPU}.memory_bytes"]
    assert "zones" in reading.unmeasurable[f"gpus.{GPU}.temperature_celsius"]


def test_cpu_and_gpu_share_the_memory(jetson: FakeJetson) -> None:
    memory = read_memory(device_roots(jetson.root)).value
    assert memory is not None
    assert memory.total_bytes == 7_802_000 * 1024
    assert memory.available_bytes == 3_901_000 * 1024
    assert memory.gpu_bytes == 2048 * 1024


def test_memory_of_the_gpu_that_only_root_may_see_is_told_and_not_zero(jetson: FakeJetson) -> None:
    jetson.without("sys/kernel/debug/nvmap/iovmm/clients")
    reading = read_memory(device_roots(jetson.root))
    assert reading.value is not None
    assert reading.value.gpu_bytes is None
    assert "root may read it" in reading.unmeasurable["memory.gpu_bytes"]


def test_the_power_mode_has_its_name_and_the_board_its_own(jetson: FakeJetson) -> None:
    roots = device_roots(jetson.root)
    assert read_power_mode(roots).value == "25W"
    jetson.write("var/lib/nvpmodel/status", "pmode:0002\n")
    assert read_power_mode(roots).value == "MAXN_SUPER"
    jetson.without("etc/nvpmodel.conf")
    assert read_power_mode(roots).value == "mode 2"
    board = read_board(roots)
    assert (board.model, board.l4t) == ("NVIDIA Jetson Orin Nano Developer Kit", "36.4.3")


def test_a_jetson_that_hides_its_mode_says_so_and_a_pc_has_none(
    jetson: FakeJetson, tmp_path: Path
) -> None:
    jetson.without("var/lib/nvpmodel/status")
    reading = read_power_mode(device_roots(jetson.root))
    assert reading.value is None
    assert "status" in reading.unmeasurable["power_mode"]
    (tmp_path / "pc").mkdir()
    assert read_power_mode(device_roots(tmp_path / "pc")).unmeasurable == {}


def test_a_folder_without_sensors_gives_reasons_and_no_number(tmp_path: Path) -> None:
    (tmp_path / "bare").mkdir()
    reading = Device(device_roots(tmp_path / "bare")).read()
    state = reading.value
    assert (state.clocks, state.zones, state.coolers, state.throttles) == ({}, {}, {}, {})
    assert state.memory is None
    assert reading.unmeasurable.keys() == {"clocks", "zones", "coolers", "throttles", "memory"}
    assert all(reading.unmeasurable.values())


def test_a_sensor_that_fails_is_told_beside_those_that_do_not(jetson: FakeJetson) -> None:
    jetson.write("sys/class/thermal/thermal_zone1/temp", "hot\n")
    jetson.without("sys/devices/system/cpu/cpufreq/policy0/scaling_cur_freq")
    reading = Device(device_roots(jetson.root)).read()
    assert list(reading.value.zones) == ["cpu-thermal"]
    assert "holds no number" in reading.unmeasurable["zones.gpu-thermal"]
    assert "scaling_cur_freq" in reading.unmeasurable[f"clocks.{CLOCK}"]


def test_a_device_folder_that_is_none_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="does not exist"):
        device_roots(tmp_path / "nowhere")


def used(jetson: FakeJetson, path: Path) -> ResourceUse:
    """A window in which the device was hot and throttled from its middle on."""
    roots = device_roots(jetson.root)
    with Sampler(path, roots=roots, nvml=FakeNvml([]), interval_s=NEVER_S) as sampler:
        sampler.watch("a", os.getpid())
        assert sampler.latest is not None
        start_unix_s = sampler.latest.unix_s
        jetson.zones(cpu=85_000, gpu=60_500)
        jetson.cooler("cpu-throttle-alert", state=1)
        jetson.over_current(7)
        sampler.sample()
        return sampler.use(start_unix_s, sampler.latest.unix_s, inferences=5)


def test_a_window_has_what_the_device_did_in_it(jetson: FakeJetson, tmp_path: Path) -> None:
    use = used(jetson, tmp_path / "resources.jsonl")
    zone = use.zones["cpu-thermal"]
    assert (zone.lowest, zone.highest) == pytest.approx((45.0, 85.0))
    assert zone.mean == pytest.approx((45.0 + 85.0) / 2, abs=0.5)
    assert use.coolers["cpu-throttle-alert"].state.highest == 1
    assert use.throttles["soctherm instantaneous over-current"] == pytest.approx(7.0)
    assert use.power_modes == ("25W",)
    assert use.clocks[CLOCK].limit_hz.mean == pytest.approx(1_344e6)
    assert use.memory is not None
    assert use.memory.available_bytes.mean == pytest.approx(3_901_000 * 1024)
    assert use.gpus[GPU].utilisation is not None
    assert "gpus" not in use.unmeasurable


def test_what_is_read_seldom_is_found_in_samples_further_away() -> None:
    """Of the device at 0 and at 20 s only: 40 to 60 degrees, so 46 at 6 s and 48 at 8 s."""

    def sample(second: int) -> Sample:
        return Sample(unix_s=1000.0 + second, monotonic_s=float(second))

    def full(second: int, celsius: float) -> Sample:
        device = {
            "zones": {"cpu": ZoneState(celsius=celsius)},
            "coolers": {"alert": CoolerState(state=1, highest=3)},
            "power_mode": "15W",
            "unmeasurable": {"clocks": "no cpufreq"},
        }
        return sample(second).model_copy(update=device)

    samples = [full(0, 40.0), *(sample(second) for second in range(1, 20)), full(20, 60.0)]
    use = use_over(samples, 1006.0, 1008.0, inferences=1, idle_watts={})
    assert use.zones["cpu"].mean == pytest.approx(47.0)
    assert (use.zones["cpu"].lowest, use.zones["cpu"].highest) == pytest.approx((46.0, 48.0))
    assert (use.coolers["alert"].state.highest, use.coolers["alert"].highest) == (1, 3)
    assert use.power_modes == ("15W",)
    assert use.unmeasurable["clocks"] == "no cpufreq"


def test_a_window_of_older_results_has_no_such_figures() -> None:
    use = ResourceUse.model_validate({"window_s": 1.0, "samples": 0})
    assert (use.clocks, use.zones, use.memory, use.power_modes) == ({}, {}, None, ())


def test_a_line_of_tegrastats_is_read_word_by_word() -> None:
    line = parse_line(TEGRASTATS)
    assert (line.used_bytes, line.total_bytes) == (2639 << 20, 7620 << 20)
    assert line.cores[:3] == ((0.01, 729e6), (0.04, 729e6), None)
    assert (line.gpu_busy, line.gpu_hz) == (0.37, None)
    assert line.zones == {"cpu": 44.156, "soc2": 43.781, "gpu": 45.968, "tj": 45.968}
    assert line.rails == {"VDD_IN": 5.263, "VDD_CPU_GPU_CV": 0.717, "VDD_SOC": 1.794}


def test_an_older_line_of_tegrastats_has_no_units_and_the_clock_of_the_gpu() -> None:
    line = parse_line(
        "RAM 1903/3964MB (lfb 6x4MB) IRAM 0/252kB(lfb 252kB) CPU [12%@1479,off] EMC_FREQ 4%@1600 "
        "GR3D_FREQ 9%@76 PLL@34C CPU@36.5C PMIC@100C POM_5V_IN 2532/2698 POM_5V_CPU 493/531"
    )
    assert (line.gpu_busy, line.gpu_hz) == (0.09, 76e6)
    assert line.cores == ((0.12, 1_479e6), None)
    assert line.zones == {"PLL": 34.0, "CPU": 36.5, "PMIC": 100.0}
    assert line.rails == {"POM_5V_IN": 2.532, "POM_5V_CPU": 0.493}


def test_another_text_is_no_line_of_tegrastats() -> None:
    with pytest.raises(ValueError, match="no line of tegrastats"):
        parse_line("hello")


def test_rails_of_tegrastats_count_where_sysfs_has_none(jetson: FakeJetson, tmp_path: Path) -> None:
    jetson.write("sys/class/hwmon/hwmon1/name", "other\n")
    log = tmp_path / "tegrastats.log"
    log.write_text(f"{TEGRASTATS}\n{TEGRASTATS[:40]}")
    roots = device_roots(jetson.root)
    with Sampler(
        tmp_path / "resources.jsonl",
        roots=roots,
        nvml=FakeNvml([]),
        interval_s=NEVER_S,
        tegrastats=log,
    ) as sampler:
        assert sampler.latest is not None
        rails = sampler.latest.rails
    assert rails["tegrastats:VDD_IN"].watts == 5.263
    assert whole(rails) == ("tegrastats:VDD_IN",)


def test_a_log_that_stands_still_tells_nothing_of_now(tmp_path: Path) -> None:
    log = tmp_path / "tegrastats.log"
    log.write_text(f"{TEGRASTATS}\n")
    now_s = log.stat().st_mtime
    assert TegraLog(log, lambda: now_s + STALE_S).newest().rails
    with pytest.raises(UnreadableError, match="has not grown"):
        TegraLog(log, lambda: now_s + STALE_S + 1).newest()
    with pytest.raises(UnreadableError, match="No such file"):
        TegraLog(tmp_path / "none").newest()
