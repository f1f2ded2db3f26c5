"""What a window used, from samples whose right answer is plain."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from loadtest.resources.record import (
    CoreState,
    GpuState,
    InterfaceState,
    RailState,
    ResourceUse,
    RoleState,
    Sample,
)
from loadtest.resources.window import use_over

BOOTED_UNIX_S = 1_000_000.0
"""Where the clock that is never set stands at 0."""


def sample(time_s: float, *, visit: float | None = 0.0, **parts: object) -> Sample:
    return Sample(
        unix_s=BOOTED_UNIX_S + time_s,
        monotonic_s=time_s,
        backend=None if visit is None else "a",
        since_unix_s=visit,
        **parts,
    )


def server(cpu_s: float = 0.0, **figures: object) -> dict[str, RoleState]:
    known = {"processes": 1, "threads": 1, "rss_bytes": 0, **figures}
    return {"server": RoleState(cpu_s=cpu_s, **known)}


def rail(joules: float) -> RailState:
    return RailState(watts=None, joules=joules)


def use(
    samples: Sequence[Sample],
    start_s: float,
    end_s: float,
    inferences: int = 1,
    idle_watts: dict[str, float] | None = None,
) -> ResourceUse:
    return use_over(
        samples,
        BOOTED_UNIX_S + start_s,
        BOOTED_UNIX_S + end_s,
        inferences=inferences,
        idle_watts=idle_watts or {},
    )


def test_counters_are_interpolated_at_the_edges() -> None:
    """Idle until 1 s, then two CPUs: of the window from 0.5 to 2 s one second was busy."""
    samples = [sample(t, roles=server(cpu_s)) for t, cpu_s in ((0, 0), (1, 0), (2, 2), (3, 4))]
    found = use(samples, 0.5, 2.0)
    assert found.roles["server"].cpu_cores == pytest.approx(2 / 1.5)
    assert found.samples == 2
    assert not found.unmeasurable.keys() & {"roles.server.cpu_s"}


TIMES = st.lists(st.floats(0.01, 5.0), min_size=2, max_size=12).map(
    lambda steps: [sum(steps[:n]) for n in range(len(steps) + 1)]
)
SHARES = st.tuples(st.floats(0, 1), st.floats(0, 1), st.floats(0, 1)).map(sorted)


@settings(max_examples=40)
@given(TIMES, SHARES, st.floats(0, 64))
def test_a_steady_counter_gives_its_rate_whenever_it_was_read(
    times: list[float], shares: list[float], cores: float
) -> None:
    samples = [sample(t, roles=server(cores * t)) for t in times]
    start_s, _, end_s = (share * times[-1] for share in shares)
    assume(end_s - start_s > 0.001)
    found = use(samples, start_s, end_s).roles["server"].cpu_cores
    assert found == pytest.approx(cores, rel=1e-4, abs=1e-4)


@settings(max_examples=40)
@given(TIMES, SHARES, st.data())
def test_a_window_used_what_its_two_parts_used(
    times: list[float], shares: list[float], data: st.DataObject
) -> None:
    steps = data.draw(st.lists(st.floats(0, 9), min_size=len(times), max_size=len(times)))
    samples = [
        sample(t, roles=server(sum(steps[: n + 1])), rails={"nvml:gpu0": rail(sum(steps[: n + 1]))})
        for n, t in enumerate(times)
    ]
    start_s, middle_s, end_s = (share * times[-1] for share in shares)
    assume(middle_s - start_s > 0.001)
    assume(end_s - middle_s > 0.001)

    def joules(start: float, end: float) -> float:
        return use(samples, start, end).rails["nvml:gpu0"].joules

    assert joules(start_s, end_s) == pytest.approx(
        joules(start_s, middle_s) + joules(middle_s, end_s), abs=1e-4
    )


@settings(max_examples=40)
@given(TIMES, SHARES, st.data())
def test_a_mean_lies_between_the_bounds_of_its_window(
    times: list[float], shares: list[float], data: st.DataObject
) -> None:
    values = data.draw(st.lists(st.floats(0, 1), min_size=len(times), max_size=len(times)))
    gpus = [{"gpu0": GpuState(utilisation=value)} for value in values]
    start_s, _, end_s = (share * times[-1] for share in shares)
    assume(end_s - start_s > 0.001)
    samples = [sample(t, gpus=gpu) for t, gpu in zip(times, gpus, strict=True)]
    gauge = use(samples, start_s, end_s).gpus["gpu0"].utilisation
    assert gauge is not None
    assert min(values) - 1e-6 <= gauge.lowest <= gauge.mean + 1e-6
    assert gauge.mean - 1e-6 <= gauge.highest <= max(values) + 1e-6


@pytest.mark.parametrize(
    ("times", "window"), [((), (1, 2)), ((1,), (1, 2)), ((1.5, 3), (1, 2)), ((0, 1.5), (1, 2))]
)
def test_a_window_that_samples_do_not_surround_is_unmeasurable(
    times: Sequence[float], window: tuple[float, float]
) -> None:
    found = use([sample(t, roles=server(t)) for t in times], *window)
    assert found.roles == {}
    assert "fewer than two" in found.unmeasurable["resources"]


def test_counters_of_two_visits_are_not_mixed() -> None:
    before = [sample(0, visit=1.0, roles=server(50.0)), sample(0.9, visit=None)]
    samples = [
        *before,
        sample(1, visit=2.0, roles=server(0)),
        sample(3, visit=2.0, roles=server(2)),
    ]
    assert use(samples, 1, 3).roles["server"].cpu_cores == pytest.approx(1.0)
    straddling = use(samples, 0.5, 3)
    assert straddling.roles["server"].cpu_cores is None
    assert "roles.server.cpu_s" in straddling.unmeasurable


def test_a_wall_clock_that_was_set_changes_no_rate() -> None:
    """Put forward by an hour between the samples at 1 s and 2 s, while the window runs."""
    samples = [sample(t, roles=server(t)) for t in range(4)]
    samples[2:] = [s.model_copy(update={"unix_s": s.unix_s + 3600}) for s in samples[2:]]
    found = use(samples, 0.5, 3602.5)
    assert found.window_s == pytest.approx(2.0)
    assert found.roles["server"].cpu_cores == pytest.approx(1.0)


def test_what_is_read_seldom_is_taken_where_it_was_read() -> None:
    """Read at 0 and 10 s only, and repeated in between as a scrape wants it."""
    samples = [
        sample(
            t,
            roles=server(
                pss_bytes=7,
                pss_age_s=t % 10,
                voluntary_switches=1000 * (t // 10),
                involuntary_switches=500 * (t // 10),
                switches_age_s=t % 10,
            ),
        )
        for t in range(11)
    ]
    found = use(samples, 5, 9).roles["server"]
    assert found.pss_peak_bytes == 7
    assert found.voluntary_switches_per_s == pytest.approx(1000 / 10)
    assert found.involuntary_switches_per_s == pytest.approx(500 / 10)


def test_peaks_are_those_of_the_window_only() -> None:
    sizes = [900, 100, 300, 100, 900]
    samples = [sample(t, roles=server(rss_bytes=size)) for t, size in enumerate(sizes)]
    assert use(samples, 1, 3).roles["server"].rss_peak_bytes == 300


def test_shares_of_cores_and_rates_of_interfaces() -> None:
    samples = [
        sample(
            t,
            cores={"0": CoreState(busy_s=0.75 * t, stolen_s=0.1 * t)},
            network={"lo": InterfaceState(receive_bytes=300 * t, transmit_bytes=20 * t)},
        )
        for t in (0, 4, 8)
    ]
    found = use(samples, 1, 7)
    assert found.cores["0"].busy == pytest.approx(0.75)
    assert found.cores["0"].stolen == pytest.approx(0.1)
    assert found.network["lo"].receive_bytes_per_s == pytest.approx(300)
    assert found.network["lo"].transmit_bytes_per_s == pytest.approx(20)


def test_every_throttle_reason_of_the_window_is_kept() -> None:
    reasons = [(), ("power cap",), None, ("thermal, by software", "power cap"), ("sync boost",)]
    samples = [sample(t, gpus={"gpu0": GpuState(throttled=r)}) for t, r in enumerate(reasons)]
    found = use(samples, 0, 3)
    assert found.gpus["gpu0"].throttled == ("power cap", "thermal, by software")
    never = use([sample(t, gpus={"gpu0": GpuState()}) for t in range(3)], 0, 2)
    assert never.gpus["gpu0"].throttled is None


def test_a_figure_that_failed_once_is_made_from_the_others() -> None:
    why = {"gpus.gpu0.utilisation": "Timeout", "gpus.gpu0.memory_bytes": "Not Supported"}
    samples = [sample(t, gpus={"gpu0": GpuState(utilisation=0.5)}) for t in range(4)]
    samples[1] = sample(1, gpus={"gpu0": GpuState()}, unmeasurable=why)
    found = use(samples, 0, 3)
    assert found.gpus["gpu0"].utilisation is not None
    assert found.gpus["gpu0"].utilisation.mean == pytest.approx(0.5)
    assert "gpus.gpu0.utilisation" not in found.unmeasurable
    assert found.gpus["gpu0"].memory_bytes is None
    assert found.unmeasurable["gpus.gpu0.memory_bytes"] == "Not Supported"


def test_a_server_elsewhere_is_told_once_and_has_no_zeros() -> None:
    why = {"roles.server": "it runs on another host"}
    found = use([sample(t, unmeasurable=why) for t in range(3)], 0, 2)
    assert "server" not in found.roles
    assert found.unmeasurable["roles.server"] == why["roles.server"]


def powered(watts: dict[str, float], why: dict[str, str] | None = None) -> list[Sample]:
    return [
        sample(
            t,
            rails={name: rail(power * t) for name, power in watts.items()},
            unmeasurable={f"rails.{name}": text for name, text in (why or {}).items()},
        )
        for t in (0, 5, 10)
    ]


def test_joules_per_inference_gross_and_net_of_idle() -> None:
    watts = {"rapl:package-0": 30.0, "rapl:package-0/core": 20.0, "rapl:package-0/dram": 5.0}
    idle = {"rapl:package-0": 12.0, "rapl:package-0/core": 3.0, "rapl:package-0/dram": 2.0}
    found = use(powered(watts), 1, 9, inferences=400, idle_watts=idle)
    assert found.rails["rapl:package-0/core"].watts == pytest.approx(20.0)
    energy = found.energy
    assert energy is not None
    assert set(energy.rails) == {"rapl:package-0", "rapl:package-0/dram"}
    assert energy.joules == pytest.approx((30 + 5) * 8)
    assert energy.joules_per_inference == pytest.approx((30 + 5) * 8 / 400)
    assert energy.idle_watts == pytest.approx(12 + 2)
    assert energy.net_joules_per_inference == pytest.approx((30 + 5 - 12 - 2) * 8 / 400)
    assert not found.unmeasurable.keys() & {"energy", "energy.idle_watts"}


def test_a_rail_that_cannot_be_read_is_missing_from_the_sum_and_told() -> None:
    samples = powered({"nvml:gpu0": 200.0}, {"rapl:package-0": "root may read it"})
    energy = use(samples, 0, 10, inferences=10, idle_watts={"nvml:gpu0": 50.0}).energy
    assert energy is not None
    assert energy.rails == ("nvml:gpu0",)
    assert energy.missing == {"rapl:package-0": "root may read it"}
    assert energy.net_joules_per_inference == pytest.approx((200 - 50) * 10 / 10)


def test_a_counter_that_stands_still_is_no_machine_without_power() -> None:
    found = use(powered({"rapl:package-0": 0.0}), 0, 10)
    assert found.energy is None
    assert "stands still" in found.unmeasurable["energy"]


@pytest.mark.parametrize(
    ("samples", "why"),
    [
        (powered({"ina3221:VDD_SOMETHING": 5.0}), "not known which"),
        (powered({}, {"rapl:package-0": "root may read it"}), "root may read it"),
        ([sample(t, unmeasurable={"rails": "no RAPL"}) for t in (0, 10)], "no RAPL"),
    ],
)
def test_a_machine_whose_energy_is_not_known_says_why(samples: list[Sample], why: str) -> None:
    found = use(samples, 0, 10)
    assert found.energy is None
    assert why in found.unmeasurable["energy"]


def test_without_idle_power_or_inferences_these_figures_are_null_and_told() -> None:
    found = use(powered({"nvml:gpu0": 200.0}), 0, 10, inferences=0)
    assert found.energy is not None
    assert found.energy.joules == pytest.approx(2000)
    assert found.energy.joules_per_inference is None
    assert found.energy.net_joules_per_inference is None
    assert found.unmeasurable.keys() >= {"energy.joules_per_inference", "energy.idle_watts"}


def test_the_record_is_read_back_as_it_was_written() -> None:
    found = use(powered({"nvml:gpu0": 200.0}), 0, 10)
    assert ResourceUse.model_validate_json(found.model_dump_json()) == found
