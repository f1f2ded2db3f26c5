"""Usable CPUs from made-up machines, and how they are split."""

from __future__ import annotations

from pathlib import Path

import pytest

from serving.errors import UsageError
from serving.host import CpuBudget, cpu_budget, memory_bytes, parse_cpus, split_cpus


def budget(tmp_path: Path, files: dict[str, str], cgroup: str, cpus: list[int]) -> CpuBudget:
    root = tmp_path / "cgroup"
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n")
    (tmp_path / "self").write_text(cgroup)
    return cpu_budget(affinity=cpus, cgroup_root=root, proc_cgroup=tmp_path / "self")


V1 = {"cpu/cpu.cfs_period_us": "100000"}


@pytest.mark.parametrize(
    ("files", "cpus", "usable", "source"),
    [
        ({"cpu.max": "150000 100000"}, [0, 1], 2, "affinity"),
        ({"cpu.max": "max 100000"}, [0, 1], 2, "affinity"),
        ({**V1, "cpu/cpu.cfs_quota_us": "50000"}, [0, 1], 1, "cgroup v1"),
        ({**V1, "cpu/cpu.cfs_quota_us": "-1"}, [0, 1], 2, "affinity"),
        ({}, [3], 1, "affinity"),
        ({"cpu.max": "1000 100000"}, [0, 1], 1, "cgroup v2"),
    ],
)
def test_usable_cpus(
    tmp_path: Path, files: dict[str, str], cpus: list[int], usable: int, source: str
) -> None:
    found = budget(tmp_path, files, "0::/\n", cpus)
    assert found.usable == usable
    assert found.source.startswith(source)


def test_the_tightest_quota_on_the_way_up_counts(tmp_path: Path) -> None:
    files = {"cpu.max": "max 100000", "a/cpu.max": "100000 100000", "a/b/cpu.max": "400000 100000"}
    assert budget(tmp_path, files, "0::/a/b\n", [0, 1, 2, 3]).usable == 1


def test_memory_is_that_of_the_cgroup(tmp_path: Path) -> None:
    (tmp_path / "memory.max").write_text("1000000\n")
    assert memory_bytes(tmp_path) == 1_000_000
    (tmp_path / "memory.max").write_text("max\n")
    assert memory_bytes(tmp_path) > 1_000_000


def test_server_and_generator_are_kept_apart() -> None:
    split = split_cpus(CpuBudget((0, 1, 2, 3), None, "affinity"))
    assert (split.server, split.client, split.shared) == ((0, 1, 2), (3,), False)
    assert split_cpus(CpuBudget((5,), None, "affinity")).shared
    assert split_cpus(CpuBudget((0, 1), None, "affinity"), server=[1]).client == (0,)


def test_a_cpu_that_is_not_there_is_refused() -> None:
    with pytest.raises(UsageError, match="CPU 7"):
        split_cpus(CpuBudget((0, 1), None, "affinity"), server=[7])


@pytest.mark.parametrize("text", ["", "a", "1-", "0,0", "3-1"])
def test_bad_cpu_lists_are_refused(text: str) -> None:
    with pytest.raises(UsageError):
        parse_cpus(text)


def test_cpu_lists() -> None:
    assert parse_cpus("0,2-4") == (0, 2, 3, 4)
