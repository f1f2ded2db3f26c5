"""Cold against heat-soaked, of made-up windows: what is compared, the answer, and its page."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from loadtest.cli import main
from loadtest.cli.soak import parse_time
from loadtest.energy_use import flight_time_lost_s
from loadtest.folder import ResultsFolder
from loadtest.resources.roots import device_roots
from loadtest.rounding import four_digits
from loadtest.scenarios.soak import SCENARIO
from loadtest.significance import Change, compare
from loadtest.soak.conclude import clock_text, moment_text
from loadtest.soak.page import render
from loadtest.soak.ratio import inflation, ratio_of
from loadtest.soak.record import Asked, Flight, Ratio, SoakRecord
from loadtest.soak.run import Sensors, require_power
from loadtest.soak.windows import compare_length_s, window_length_s
from serving.errors import MachineError, ResultsError, UsageError
from tests.fake_jetson import FakeJetson
from tests.fake_machine import FakeNvml
from tests.sample_soak import BOARD, GAP_S, IDLE_W, WINDOW_S, Hot, MadeSoak
from tests.sample_trials import manifest

EACH_S = WINDOW_S + GAP_S
SIDE = 5
NOISE = (0, 1, -1, 1, -1)
COLD, HOT = 108, 96


def asked(windows: int, side: int = SIDE, flight: Flight | None = None) -> Asked:
    return Asked(duration_s=windows * EACH_S, compare_s=side * EACH_S, flight=flight)


def soaked(*windows: Hot, **changes: object) -> SoakRecord:
    made = MadeSoak(windows, **changes)  # type: ignore[arg-type]
    return made.record(asked(len(windows)))


def course(cold: Hot, hot: Hot) -> tuple[Hot, ...]:
    """Noise around two levels, with windows in between that no stretch has."""

    def side(one: Hot) -> list[Hot]:
        return [Hot(**{**vars(one), "rate": one.rate + noise}) for noise in NOISE]

    return (*side(cold), *[cold] * 3, *side(hot))


def geometric(rates: list[int]) -> float:
    return math.exp(sum(map(math.log, rates)) / len(rates))


def test_five_minutes_are_compared_or_a_fifth_of_what_is_shorter_than_25() -> None:
    assert compare_length_s(SCENARIO.duration_s) == 5 * 60
    assert compare_length_s(25 * 60) == 5 * 60
    assert compare_length_s(10 * 60) == 2 * 60


def test_a_stretch_has_ten_windows_of_1_to_30_s() -> None:
    assert window_length_s(300) == 30
    assert window_length_s(1000) == 30
    assert window_length_s(100) == 10
    assert window_length_s(3) == 1


def test_capacity_is_stated_cold_and_heat_soaked_and_the_cause_is_named() -> None:
    record = soaked(*course(Hot(COLD), Hot(HOT, ghz=1.2, state=1, celsius=80)))
    before = geometric([COLD + noise for noise in NOISE])
    after = geometric([HOT + noise for noise in NOISE])
    assert record.verdict == "faded"
    assert record.throughput is not None
    assert record.throughput.before == pytest.approx(before)
    assert record.throughput.after == pytest.approx(after)
    assert record.throughput.ratio == pytest.approx(after / before)
    assert record.throughput.low is not None
    assert record.throughput.high is not None
    assert record.throughput.low < after / before < record.throughput.high < 1
    assert record.sentence.startswith(
        f"Capacity cold {four_digits(before)}/s, heat-soaked {four_digits(after)}/s "
        f"({after / before:.3f}, "
    )
    assert record.sentence.endswith("): throttled by cooling device cpu-throttle-alert.")


def test_a_fan_that_turns_is_no_throttling() -> None:
    record = soaked(*course(Hot(COLD), Hot(HOT)))
    assert all(window.throttled == () for window in record.windows)
    assert record.sentence.endswith("; nothing told of throttling.")


def test_clocks_that_fell_without_a_reason_are_told() -> None:
    record = soaked(*course(Hot(COLD), Hot(HOT, ghz=1.2)))
    assert "clocks fell (cpu:policy0 1.50 to 1.20 GHz), and nothing tells why" in record.sentence


def test_what_throttled_from_the_beginning_is_said_so() -> None:
    record = soaked(*course(Hot(COLD, state=1), Hot(HOT, state=1)))
    assert record.sentence.endswith("cpu-throttle-alert, from the beginning on.")


def test_a_machine_without_sensors_does_not_say_that_nothing_throttled() -> None:
    record = soaked(*course(Hot(COLD, sensors=False), Hot(HOT, sensors=False)))
    assert record.sentence.endswith("; whether it throttled cannot be read here.")
    assert record.missing == {"resources": "nothing was sampled"}
    assert "cannot be read" in render(record)


def test_the_same_at_both_ends_is_no_significant_difference() -> None:
    record = soaked(*course(Hot(COLD), Hot(COLD)))
    assert record.verdict == "no significant difference"
    assert record.sentence.startswith("No significant difference: capacity cold 108/s")
    assert "not excluded" not in record.sentence


def test_a_wide_interval_is_not_called_no_loss() -> None:
    rates = (100, 60, 140, 80, 120)
    record = soaked(*[Hot(rate) for rate in (*rates, 100, *rates)])
    assert record.verdict == "no significant difference"
    assert record.throughput is not None
    assert record.throughput.low is not None
    assert f"a loss of {1 - record.throughput.low:.0%} is not excluded" in record.sentence


def test_a_window_that_measured_the_generator_is_left_out() -> None:
    bad = Hot(20, reasons=("client-bound: the generator used 99% of its CPU",))
    unsteady = Hot(COLD, reasons=("not steady: it drifts",))
    windows = list(course(Hot(COLD), Hot(COLD)))
    windows[0], windows[1] = bad, unsteady
    record = soaked(*windows)
    assert record.cold is not None
    assert (record.cold.windows, record.cold.left_out) == (SIDE - 1, 1)
    assert record.verdict == "no significant difference"
    assert "(left out)" in render(record)


def test_two_windows_a_side_say_nothing_of_chance() -> None:
    windows = [Hot(COLD), Hot(COLD), Hot(HOT), Hot(HOT)]
    record = MadeSoak(windows).record(asked(4, side=2))
    assert record.verdict == "too few windows"
    assert "say nothing of chance" in record.sentence


def test_a_given_rate_is_compared_by_its_p99() -> None:
    rate = 600
    windows = course(Hot(rate, latency_ms=5.0), Hot(rate, latency_ms=6.0))
    record = soaked(*windows, scenario="soak")
    assert record.p99 is not None
    assert record.p99.ratio == pytest.approx(6.0 / 5.0, rel=2e-3)
    assert record.verdict == "faded"
    assert record.sentence.startswith("p99 cold 5.0")


def test_a_soak_that_was_interrupted_compares_its_first_and_last_fifth() -> None:
    rates = [COLD + noise for noise in NOISE * 3]
    record = MadeSoak([Hot(rate) for rate in rates], planned=60).record(asked(60, side=12))
    assert not record.complete
    assert record.cold is not None
    assert record.soaked is not None
    assert (record.cold.windows, record.soaked.windows) == (3, 3)
    assert record.sentence.startswith(f"Interrupted after {clock_text(15 * EACH_S)}: ")
    assert "not finished" in render(record)


def test_energy_is_of_the_hot_end_and_flight_time_follows_from_its_power() -> None:
    flight = Flight(hover_w=180, battery_wh=71)
    windows = course(Hot(COLD, watts=12.0), Hot(HOT, watts=10.0))
    record = MadeSoak(windows).record(asked(len(windows), flight=flight))
    assert record.soaked is not None
    found, rate = record.soaked.efficiency, record.soaked.inferences_per_s
    assert rate is not None
    assert found.gross_per_joule == pytest.approx(rate / 10)
    assert found.net_per_joule == pytest.approx(rate / (10 - IDLE_W))
    assert found.gross_per_wh == pytest.approx(3600 * rate / 10)
    assert record.flight is not None
    assert record.flight.lost_s == pytest.approx(flight_time_lost_s(180, 71, 10))
    assert record.power is not None
    assert record.power.ratio == pytest.approx(10 / 12)
    assert f"<strong>{record.flight.lost_s:.0f} s</strong>" in render(record)


def test_without_a_rail_there_is_a_reason_and_no_number() -> None:
    flight = Flight(hover_w=180, battery_wh=71)
    windows = course(Hot(COLD, watts=None), Hot(HOT, watts=None))
    record = MadeSoak(windows).record(asked(len(windows), flight=flight))
    assert record.flight is None
    assert record.power is None
    assert record.soaked is not None
    assert record.soaked.efficiency.gross_per_joule is None
    assert record.missing == {"energy": "no rail"}
    assert "no rail" in render(record)


def test_the_page_has_what_the_board_says_and_escapes_it() -> None:
    page = render(soaked(*course(Hot(COLD), Hot(HOT))))
    assert BOARD.model is not None
    assert BOARD.model not in page
    assert "A board &lt;of&gt; ours" in page
    assert "Power mode: 25W" in page


def falsely_found(rho: float, judge: Callable[[list[float], list[float]], Ratio | Change]) -> float:
    """Share of soaks without a difference whose interval leaves 1 out; ten windows a side."""
    count, soaks = 10, 2000
    rng = np.random.default_rng(1)
    noise = rng.normal(size=(soaks, 2, count + 50))
    for place in range(1, count + 50):
        noise[:, :, place] += rho * noise[:, :, place - 1]
    rates = np.exp(0.01 * noise[:, :, 50:])
    found = [judge(before, after) for before, after in rates.tolist()]
    return sum((one.low or 0) > 1 or (one.high or 2) < 1 for one in found) / soaks


@pytest.mark.parametrize(
    ("rho", "most", "otherwise"), [(0.0, 0.05, 0.0), (0.3, 0.09, 0.12), (0.6, 0.13, 0.30)]
)
def test_windows_that_resemble_their_neighbours_do_not_make_a_difference(
    rho: float, most: float, otherwise: float
) -> None:
    """As they would in so many soaks, were they taken for independent."""
    assert falsely_found(rho, ratio_of) <= most
    assert falsely_found(rho, compare) > otherwise


def test_few_windows_are_not_asked_for_their_autocorrelation() -> None:
    assert inflation([1, 2, 3, 4], [1, 2, 3, 4, 5]) == 1.0
    assert inflation([1, 2, 3, 4, 5], [1, 2, 3, 4, 5]) > 1.0
    assert inflation([5.0] * 5, [5.0] * 5) == 1.0


def test_a_power_mode_that_changed_is_told() -> None:
    windows = course(Hot(COLD), Hot(HOT, mode="15W"))
    record = soaked(*windows)
    assert record.power_modes == ("25W", "15W")
    assert record.sentence.endswith("The power mode changed meanwhile: 25W, then 15W.")


def test_memory_that_the_server_gained_stands_in_the_table() -> None:
    record = soaked(*course(Hot(COLD, rss_bytes=100 * 10**6), Hot(COLD, rss_bytes=150 * 10**6)))
    assert record.cold is not None
    assert record.soaked is not None
    assert record.cold.gauges.server_rss_bytes == 100 * 10**6
    assert record.soaked.gauges.server_rss_bytes == 150 * 10**6
    assert "150 MB" in render(record)


def test_nothing_measured_gives_a_page_that_says_so() -> None:
    record = MadeSoak([], planned=10).record(asked(10))
    assert record.verdict == "not comparable"
    assert "no window was measured at its beginning" in record.sentence
    assert "Nothing was measured" in render(record)


@pytest.mark.parametrize(
    ("text", "seconds"), [("45m", 2700), ("90", 90), ("90s", 90), ("1.5h", 5400), ("2 min", 120)]
)
def test_times_are_read_with_their_unit(text: str, seconds: float) -> None:
    assert parse_time(text, "--duration") == seconds


@pytest.mark.parametrize("text", ["", "0", "-5m", "1.2.3s", "5 days"])
def test_what_is_no_time_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="--duration"):
        parse_time(text, "--duration")


def test_times_are_written_as_people_read_them() -> None:
    assert [clock_text(s) for s in (90, 2700, 3900)] == ["90 s", "45 min", "1 h 05 min"]
    assert moment_text(2670) == "44:30"


def refused(monkeypatch: pytest.MonkeyPatch, *words: str) -> int:
    monkeypatch.setattr("sys.argv", ["infersweep", "soak", *words])
    monkeypatch.setattr("loadtest.soak.run.load_nvml", lambda: FakeNvml([]))
    with pytest.raises(SystemExit) as left:
        main()
    assert isinstance(left.value.code, int)
    return left.value.code


def test_a_device_folder_without_a_rail_is_one_clear_line(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "bare").mkdir()
    words = ("--device-root", str(tmp_path / "bare"), "--hover-w", "180", "--battery-wh", "71")
    code = refused(monkeypatch, *words, "--out", str(tmp_path / "out"))
    assert code == MachineError.exit_code
    (line,) = capsys.readouterr().err.splitlines()
    assert "power cannot be measured: no RAPL, no INA3221" in line
    assert "--hover-w" in line
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--hover-w", "180"), "--battery-wh"),
        (("--rate", "5", "--users", "5"), "two kinds of load"),
        (("--duration", "10s", "--compare", "6s"), "more than half"),
        (("--backend", "onnxruntime,fastapi"), "one at a time"),
        (("--device-root", "/does/not/exist"), "does not exist"),
    ],
)
def test_what_cannot_be_is_told_before_anything_starts(
    words: tuple[str, ...],
    told: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert refused(monkeypatch, *words) == UsageError.exit_code
    assert told in capsys.readouterr().err


def test_a_folder_of_another_run_is_left_alone(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = ResultsFolder(tmp_path)
    folder.write_manifest(manifest())
    folder.trials.touch()
    before = sorted(tmp_path.iterdir())
    assert refused(monkeypatch, "--out", str(tmp_path)) == ResultsError.exit_code
    assert "holds another run" in capsys.readouterr().err
    assert sorted(tmp_path.iterdir()) == before


def test_rails_that_are_not_known_to_be_the_machine_are_no_power(tmp_path: Path) -> None:
    jetson = FakeJetson(tmp_path)
    sensors = Sensors(device_roots(jetson.root))
    require_power(sensors, FakeNvml([]))
    jetson.write("sys/class/hwmon/hwmon1/in1_label", "VDD_SOMETHING\n")
    with pytest.raises(MachineError, match="not known"):
        require_power(sensors, FakeNvml([]))
