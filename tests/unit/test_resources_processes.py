"""Families of processes in made-up trees: who belongs, what they used, and what stays counted."""

from __future__ import annotations

import itertools
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadtest.resources.cores import read_cores
from loadtest.resources.network import read_network
from loadtest.resources.pace import LONGEST_S, SHARE, Seldom
from loadtest.resources.processes import Family, Kept
from loadtest.resources.record import RoleState
from tests.fake_machine import PSS_KIB, RSS_PAGES, FakeMachine

TICK_S = 1 / os.sysconf("SC_CLK_TCK")
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
SERVER, WORKER, OTHER = 10, 11, 20


@pytest.fixture
def machine(tmp_path: Path) -> FakeMachine:
    machine = FakeMachine(tmp_path)
    machine.process(1, parent=0)
    machine.process(SERVER, ticks=100, threads={SERVER: (5, 1), 12: (7, 2)})
    machine.process(WORKER, parent=SERVER, ticks=50)
    machine.process(OTHER)
    return machine


def state_of(family: Family) -> RoleState:
    reading = family.read(at_once=True)
    assert reading.value is not None
    assert not reading.unmeasurable
    return reading.value


def test_a_family_is_a_process_and_what_its_threads_started(machine: FakeMachine) -> None:
    state = state_of(Family(machine.roots, "server", SERVER))
    assert (state.processes, state.threads) == (2, 3)
    assert state.rss_bytes == 2 * RSS_PAGES * PAGE_BYTES
    assert state.pss_bytes == 2 * PSS_KIB * 1024


def test_counters_begin_at_zero_and_grow_by_what_was_used(machine: FakeMachine) -> None:
    family = Family(machine.roots, "server", SERVER)
    first = state_of(family)
    assert (first.cpu_s, first.voluntary_switches, first.involuntary_switches) == (0.0, 0, 0)
    machine.process(SERVER, ticks=103, threads={SERVER: (6, 1), 12: (9, 5)})
    second = state_of(family)
    assert second.cpu_s == pytest.approx(3 * TICK_S)
    assert (second.voluntary_switches, second.involuntary_switches) == (1 + 2, 3)


def test_what_a_member_used_stays_counted_when_it_is_gone(machine: FakeMachine) -> None:
    family = Family(machine.roots, "server", SERVER)
    state_of(family)
    machine.process(WORKER, parent=SERVER, ticks=90, threads={WORKER: (4, 0)})
    used = state_of(family)
    machine.end(WORKER)
    later = state_of(family)
    assert (later.processes, later.threads) == (1, 2)
    assert later.cpu_s == used.cpu_s == pytest.approx(40 * TICK_S)
    assert later.voluntary_switches == used.voluntary_switches == 4


def test_a_new_member_counts_from_its_birth_also_under_an_old_number(machine: FakeMachine) -> None:
    family = Family(machine.roots, "server", SERVER)
    state_of(family)
    machine.end(WORKER)
    machine.process(WORKER, parent=SERVER, ticks=60, started=99)
    assert state_of(family).cpu_s == pytest.approx(60 * TICK_S)


def test_whoever_belonged_still_does_when_its_parent_died(machine: FakeMachine) -> None:
    family = Family(machine.roots, "server", SERVER)
    state_of(family)
    machine.end(SERVER)
    machine.process(WORKER, parent=1, ticks=51)
    state = state_of(family)
    assert state.processes == 1
    assert state.cpu_s == pytest.approx(1 * TICK_S)
    machine.process(WORKER, parent=1, ticks=900, started=99)
    assert state_of(family).processes == 0


def test_families_that_stand_apart_are_left_out_with_their_children(machine: FakeMachine) -> None:
    machine.process(30, parent=1)
    machine.process(SERVER, parent=30)
    family = Family(machine.roots, "generator", 30, lambda: [SERVER])
    assert state_of(family).processes == 1
    assert state_of(Family(machine.roots, "generator", 30)).processes == 3


def test_a_dead_process_that_nobody_waited_for_is_no_process(machine: FakeMachine) -> None:
    machine.process(WORKER, parent=SERVER, ticks=50, state="Z", pss_kib=0)
    state = state_of(Family(machine.roots, "server", SERVER))
    assert (state.processes, state.threads) == (1, 2)


def test_a_kernel_without_lists_of_children_gives_the_same_family(machine: FakeMachine) -> None:
    expected = state_of(Family(machine.roots, "server", SERVER))
    machine.without_children_files()
    assert state_of(Family(machine.roots, "server", SERVER)) == expected


def test_a_family_that_is_gone_has_no_processes(machine: FakeMachine) -> None:
    assert state_of(Family(machine.roots, "server", 999)).processes == 0


def test_a_kernel_without_proportional_sizes_says_so(machine: FakeMachine) -> None:
    machine.process(WORKER, parent=SERVER, pss_kib=None)
    reading = Family(machine.roots, "server", SERVER).read(at_once=True)
    assert reading.value is not None
    assert reading.value.pss_bytes is None
    assert "no smaps_rollup" in reading.unmeasurable["roles.server.pss_bytes"]
    assert reading.value.rss_bytes > 0


def test_what_may_not_be_read_is_told_with_the_kernels_words(
    machine: FakeMachine, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: str | Path) -> bytes:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr("loadtest.resources.processes.read_file", refuse)
    reading = Family(machine.roots, "server", SERVER).read()
    assert reading.value is None
    assert "Permission denied" in reading.unmeasurable["roles.server"]


class Costly:
    """A reading that costs ``cost_s`` of CPU time, and the clocks that go with it."""

    def __init__(self, cost_s: float) -> None:
        self.now_s = self._cpu_s = 0.0
        self._cost_s, self._made = cost_s, 0
        self._seldom: Seldom[int] = Seldom(lambda: self.now_s, lambda: self._cpu_s)

    def _read(self) -> int:
        self._cpu_s += self._cost_s
        self._made += 1
        return self._made

    def at(self, now_s: float, *, at_once: bool = False) -> tuple[int | None, float]:
        self.now_s = now_s
        return self._seldom.read(self._read, at_once=at_once)


def test_what_costs_much_is_read_seldom_unless_asked_for() -> None:
    """At most ``SHARE`` of the time: what costs 10 times that of a second is read every 10 s."""
    costly = Costly(10 * SHARE)
    assert costly.at(0.0) == (1, 0.0)
    assert costly.at(9.5) == (1, 9.5)
    assert costly.at(10.5) == (2, 0.0)
    assert costly.at(11.0, at_once=True) == (3, 0.0)


def test_however_costly_a_reading_is_made_within_the_longest_pause() -> None:
    costly = Costly(10 * LONGEST_S * SHARE)
    costly.at(0.0)
    assert costly.at(LONGEST_S) == (2, 0.0)


def test_a_reading_that_failed_leaves_no_value_of_before() -> None:
    now_s = [0.0]
    seldom: Seldom[int] = Seldom(lambda: now_s[0], lambda: 0.0)
    assert seldom.read(lambda: 1, at_once=False) == (1, 0.0)
    with pytest.raises(ZeroDivisionError):
        seldom.read(lambda: 1 // 0, at_once=True)
    assert seldom._value is None


def rarely() -> Seldom[set[int]]:
    """A reading that costs a second, and clocks that move on by as much with each look."""
    return Seldom(itertools.count().__next__, itertools.count().__next__)


def test_a_number_that_another_process_got_is_no_member_before_one_looks_again(
    machine: FakeMachine,
) -> None:
    family = Family(machine.roots, "server", SERVER)
    family._found = rarely()
    state_of(family)
    machine.end(WORKER)
    machine.process(WORKER, parent=1, ticks=900, started=99)
    seldom = family.read().value
    assert seldom is not None
    assert (seldom.processes, seldom.cpu_s) == (1, 0.0)


def test_a_member_that_was_not_looked_for_yet_counts_from_its_birth(machine: FakeMachine) -> None:
    family = Family(machine.roots, "server", SERVER)
    family._found = rarely()
    state_of(family)
    machine.process(13, parent=SERVER, ticks=30)
    seldom = family.read().value
    assert seldom is not None
    assert seldom.processes == 2
    later = state_of(family)
    assert later.processes == 3
    assert later.cpu_s == pytest.approx(30 * TICK_S)


@given(
    st.lists(st.dictionaries(st.integers(0, 4), st.integers(0, 50), max_size=5), min_size=1),
)
def test_a_kept_counter_adds_up_all_that_was_seen_and_never_goes_back(
    steps: list[dict[int, int]],
) -> None:
    """Each step says how much the members that are there have used since the step before."""
    kept, values, totals, expected = Kept(), dict[int, int](), list[int](), 0
    for number, step in enumerate(steps):
        values = {member: values.get(member, 0) + used for member, used in step.items()}
        expected += sum(step.values()) if number else 0
        totals.append(kept.add(dict(values)))
    assert totals == sorted(totals)
    assert totals[-1] == expected


def test_a_lower_value_is_that_of_a_new_member_under_an_old_number() -> None:
    kept = Kept()
    assert [kept.add({1: value}) for value in (10, 12, 4, 5)] == [0, 2, 2 + 4, 2 + 5]


def test_a_core_is_busy_when_it_neither_idles_nor_was_taken_away(tmp_path: Path) -> None:
    machine = FakeMachine(tmp_path)
    # user nice system idle iowait irq softirq steal guest guest_nice
    machine.write(
        machine.roots.proc / "stat",
        "cpu  9 9 9 9 9 9 9 9 9 9\ncpu0 1 2 4 1000 2000 8 16 32 1 0\ncpu7 1 0 0 5 0 0 0 0 0 0\n"
        "intr 5 5\nctxt 1\n",
    )
    cores = read_cores(machine.roots).value
    assert list(cores) == ["0", "7"]
    assert cores["0"].busy_s == pytest.approx((1 + 2 + 4 + 8 + 16) * TICK_S)
    assert cores["0"].stolen_s == pytest.approx(32 * TICK_S)


def test_bytes_are_read_for_every_interface(tmp_path: Path) -> None:
    machine = FakeMachine(tmp_path)
    machine.write(
        machine.roots.proc / "net/dev",
        "Inter-|   Receive  |  Transmit\n face |bytes packets|bytes packets\n"
        "    lo: 100 1 0 0 0 0 0 0 200 2 0 0 0 0 0 0\n"
        "eth0:0:7 1 0 0 0 0 0 0 8 2 0 0 0 0 0 0\n",
    )
    found = read_network(machine.roots).value
    assert {name: (i.receive_bytes, i.transmit_bytes) for name, i in found.items()} == {
        "lo": (100, 200),
        "eth0:0": (7, 8),
    }


def test_a_machine_without_these_files_says_so(tmp_path: Path) -> None:
    roots = FakeMachine(tmp_path).roots
    assert "No such file" in read_cores(roots).unmeasurable["cores"]
    assert "No such file" in read_network(roots).unmeasurable["network"]
