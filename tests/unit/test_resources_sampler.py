"""The sampler on made-up machines: what it writes, and that it never raises into a run."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from loadtest.metrics import RESOURCE_METRICS, UNMEASURABLE
from loadtest.resources.families import families
from loadtest.resources.log import SampleLog, last_sample, read_samples
from loadtest.resources.pace import LONGEST_S
from loadtest.resources.record import (
    CoreState,
    GpuState,
    InterfaceState,
    RailState,
    RoleState,
    Sample,
)
from loadtest.resources.sampler import Sampler
from serving.errors import ResultsError
from tests.fake_machine import FakeGpu, FakeMachine, FakeNvml

NEVER_S = 3600.0
SERVER = 10


@pytest.fixture
def machine(tmp_path: Path) -> FakeMachine:
    machine = FakeMachine(tmp_path)
    machine.process(1, parent=0)
    machine.process(os.getpid())
    machine.process(SERVER, parent=os.getpid(), ticks=100)
    machine.write(machine.roots.proc / "stat", "cpu0 1 2 3 4 5 6 7 8 9 10\n")
    machine.write(machine.roots.proc / "net/dev", "a\nb\n")
    return machine


def sampler_of(machine: FakeMachine, path: Path, nvml: FakeNvml | None = None) -> Sampler:
    """One that takes no sample by itself."""
    return Sampler(path, roots=machine.roots, nvml=nvml or FakeNvml([]), interval_s=NEVER_S)


def test_each_sample_is_a_line_of_the_backend_that_is_watched(
    machine: FakeMachine, tmp_path: Path
) -> None:
    path = tmp_path / "resources.jsonl"
    with sampler_of(machine, path) as sampler:
        sampler.watch("triton", SERVER)
        machine.process(SERVER, parent=os.getpid(), ticks=150)
        sampler.sample()
        assert sampler.latest == read_samples(path)[-1]
        sampler.unwatch()
    before, first, second, third, after = read_samples(path)
    assert [s.backend for s in (before, first, third, after)] == [None, "triton", "triton", None]
    assert (before.roles, after.roles) == ({}, {})
    assert first.roles["server"].cpu_s == 0.0
    assert second.roles["server"].cpu_s == pytest.approx(50 / os.sysconf("SC_CLK_TCK"))
    assert second.since_unix_s == first.since_unix_s
    assert sampler.ended is None


def test_the_server_is_no_part_of_the_generator(machine: FakeMachine, tmp_path: Path) -> None:
    machine.process(20, parent=os.getpid())
    machine.process(30, parent=os.getpid())
    path = tmp_path / "resources.jsonl"
    with Sampler(
        path,
        apart=lambda: [30],
        roots=machine.roots,
        nvml=FakeNvml([]),
        interval_s=NEVER_S,
    ) as sampler:
        sampler.watch("triton", SERVER)
        assert sampler.latest is not None
        counts = {role: state.processes for role, state in sampler.latest.roles.items()}
    assert counts == {"server": 1, "generator": 2}


def test_a_new_visit_counts_from_zero_again(machine: FakeMachine, tmp_path: Path) -> None:
    with sampler_of(machine, tmp_path / "resources.jsonl") as sampler:
        sampler.watch("a", SERVER)
        machine.process(SERVER, parent=os.getpid(), ticks=500)
        sampler.watch("b", SERVER)
        assert sampler.latest is not None
        assert sampler.latest.backend == "b"
        assert sampler.latest.roles["server"].cpu_s == 0.0


def test_a_server_that_cannot_be_seen_is_told_with_the_reason(
    machine: FakeMachine, tmp_path: Path
) -> None:
    with sampler_of(machine, tmp_path / "resources.jsonl") as sampler:
        sampler.watch("remote", None)
        assert sampler.latest is not None
        assert list(sampler.latest.roles) == ["generator"]
        assert sampler.latest.unmeasurable["roles.server"] == "it runs on another host"
        sampler.watch("triton", None, "it runs in a container")
        assert sampler.latest.unmeasurable["roles.server"] == "it runs in a container"


def test_a_window_that_just_ended_is_surrounded_by_samples(
    machine: FakeMachine, tmp_path: Path
) -> None:
    with sampler_of(machine, tmp_path / "resources.jsonl") as sampler:
        sampler.watch("triton", SERVER)
        assert sampler.latest is not None
        start_unix_s = sampler.latest.unix_s
        sampler.sample()
        found = sampler.use(start_unix_s, sampler.latest.unix_s, inferences=5)
    assert found.samples == 2
    assert found.roles["server"].cpu_cores == 0.0
    assert "resources" not in found.unmeasurable


def test_a_window_is_found_among_many_samples(machine: FakeMachine, tmp_path: Path) -> None:
    with sampler_of(machine, tmp_path / "resources.jsonl") as sampler:
        sampler.watch("triton", SERVER)
        times = []
        for ticks in range(100, 108):
            machine.process(SERVER, parent=os.getpid(), ticks=ticks)
            sampler.sample()
            assert sampler.latest is not None
            times.append(sampler.latest.unix_s)
        found = sampler.use(times[2], times[5], inferences=1)
    cpu_s = found.roles["server"].cpu_cores
    assert cpu_s is not None
    assert cpu_s * found.window_s == pytest.approx(3 / os.sysconf("SC_CLK_TCK"))


def test_only_the_lines_that_a_window_needs_are_read_back(tmp_path: Path) -> None:
    log = SampleLog(tmp_path / "resources.jsonl")
    samples = [Sample(unix_s=100.0 + n, monotonic_s=float(n)) for n in range(400)]
    for sample in samples:
        log.append(sample)
    reach_s = int(2 * LONGEST_S)
    assert log.around(250.5, 260.5) == samples[150 - reach_s : 161 + reach_s + 1]
    assert log.around(499.0, 499.0)[-1] == samples[-1]
    assert log.around(0.0, 100.0 - reach_s) == samples[:1]
    log.close()


def test_idle_power_is_kept_where_a_rail_can_be_read(machine: FakeMachine, tmp_path: Path) -> None:
    machine.ina3221(0, {1: ("VDD_IN", 5000, 1200)})
    with sampler_of(machine, tmp_path / "resources.jsonl") as sampler:
        sampler.measure_idle(0.01)
        assert sampler.idle_watts == pytest.approx({"ina3221:VDD_IN": 5.0 * 1.2})


def test_without_a_rail_no_time_is_spent_on_idle_power(
    machine: FakeMachine, tmp_path: Path
) -> None:
    with sampler_of(machine, tmp_path / "resources.jsonl") as sampler:
        before = sampler.latest
        sampler.measure_idle(1.0)
        assert sampler.latest is before
        assert sampler.idle_watts == {}


def test_a_full_disk_ends_the_sampling_and_not_the_run(machine: FakeMachine) -> None:
    with sampler_of(machine, Path("/dev/full")) as sampler:
        sampler.watch("triton", SERVER)
        found = sampler.use(0.0, 1.0, inferences=1)
    assert sampler.ended is not None
    assert "No space left" in sampler.ended
    assert "No space left" in found.unmeasurable["resources"]


def test_a_folder_that_is_not_there_ends_the_sampling_only(
    machine: FakeMachine, tmp_path: Path
) -> None:
    with sampler_of(machine, tmp_path / "absent/resources.jsonl") as sampler:
        pass
    assert "No such file" in (sampler.ended or "")


def test_a_reader_that_fails_ends_the_sampling_only(machine: FakeMachine, tmp_path: Path) -> None:
    nvml = FakeNvml([FakeGpu()])
    path = tmp_path / "resources.jsonl"
    with sampler_of(machine, path, nvml) as sampler:
        machine.write(machine.roots.proc / "stat", "cpu0 what is this\n")
        sampler.watch("triton", SERVER)
        assert sampler.ended
        assert not nvml.is_open
    assert len(read_samples(path)) == 1


def test_a_half_written_last_line_is_left_out_and_cut_off(
    machine: FakeMachine, tmp_path: Path
) -> None:
    path = tmp_path / "resources.jsonl"
    with sampler_of(machine, path):
        pass
    whole = read_samples(path)
    with path.open("a") as file:
        file.write('{"unix_s": 12')
    assert read_samples(path) == whole
    with sampler_of(machine, path) as sampler:
        assert read_samples(path)[:-1] == whole
        assert read_samples(path)[-1] == sampler.latest


def test_the_last_whole_line_is_found_from_the_files_end(
    machine: FakeMachine, tmp_path: Path
) -> None:
    path = tmp_path / "resources.jsonl"
    assert last_sample(path) is None
    with sampler_of(machine, path) as sampler:
        assert last_sample(path) == sampler.latest
        with path.open("a") as file:
            file.write('{"unix_s": 12')
        assert last_sample(path) == sampler.latest


def test_a_damaged_line_is_an_error_that_names_the_file(tmp_path: Path) -> None:
    path = tmp_path / "resources.jsonl"
    path.write_text("{}\n")
    with pytest.raises(ResultsError, match=r"resources\.jsonl"):
        read_samples(path)


FULL = Sample(
    unix_s=1.0,
    monotonic_s=1.0,
    backend="triton",
    since_unix_s=0.5,
    roles={
        "server": RoleState(
            processes=2,
            threads=9,
            cpu_s=1.5,
            rss_bytes=100,
            pss_bytes=80,
            voluntary_switches=7,
            involuntary_switches=3,
        )
    },
    cores={"0": CoreState(busy_s=4.0, stolen_s=0.5)},
    network={"lo": InterfaceState(receive_bytes=10, transmit_bytes=20)},
    gpus={
        "gpu0": GpuState(
            utilisation=0.5,
            engine_active=0.4,
            sm_active=0.3,
            memory_bytes=1 << 30,
            sm_clock_hz=1.5e9,
            memory_clock_hz=2.6e9,
            temperature_celsius=60,
            throttled=("power cap",),
        )
    },
    rails={"nvml:gpu0": RailState(watts=90.0, joules=450.0)},
    unmeasurable={"rails.rapl:package-0": "root may read it"},
)


def test_a_full_sample_has_every_metric_of_the_table_with_its_labels() -> None:
    rows = families(FULL, "run-1")
    assert {metric.name for metric, _, _ in rows} == {metric.name for metric in RESOURCE_METRICS}
    for metric, labels, _ in rows:
        assert len(labels) == len(metric.labels)
        assert dict(zip(metric.labels, labels, strict=True))["run"] == "run-1"
    assert len({(metric.name, labels) for metric, labels, _ in rows}) == len(rows)


def test_what_is_null_has_no_row_and_no_zero() -> None:
    bare = Sample(
        unix_s=1.0,
        monotonic_s=1.0,
        gpus={"gpu0": GpuState()},
        rails={"nvml:gpu0": RailState(watts=None, joules=0.0)},
        unmeasurable={"gpus.gpu0.utilisation": "Not Supported"},
    )
    rows = families(bare, "run-1")
    assert {metric.name for metric, _, _ in rows} == {"infersweep_energy_joules", UNMEASURABLE.name}
    assert (UNMEASURABLE, ("run-1", "gpus.gpu0.utilisation", "Not Supported"), 1.0) in rows
