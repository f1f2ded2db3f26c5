"""What the processes of one role use: a process and everything that it started."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping
from dataclasses import dataclass

from loadtest.resources.pace import Seldom
from loadtest.resources.record import RoleState
from loadtest.resources.roots import Reading, Roots, UnreadableError, because, read_file

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_GONE = (FileNotFoundError, ProcessLookupError)
_VOLUNTARY, _INVOLUNTARY = b"\nvoluntary_ctxt_switches:", b"\nnonvoluntary_ctxt_switches:"


class Kept:
    """A counter over members that come and go. It begins at 0, and never goes back: what a member
    had used stays counted when it is gone.
    """

    def __init__(self) -> None:
        self._last: Mapping[Hashable, int] | None = None
        self._total = 0

    def add(self, now: Mapping[Hashable, int]) -> int:
        """The total, after the counters that the members have now."""
        if self._last is not None:
            for member, value in now.items():
                before = self._last.get(member, 0)
                # A lower value belongs to another member that got the same number.
                self._total += value - before if value >= before else value
        self._last = now
        return self._total


@dataclass(frozen=True)
class _Process:
    """``started`` tells a process from an earlier one of the same number."""

    pid: int
    started: int
    dead: bool
    cpu_ticks: int
    threads: int
    resident_pages: int


class Family:
    """A process and its descendants, except those in ``apart`` and theirs.

    Whoever once belonged to it does until its end, even when its parent has died.
    """

    def __init__(
        self, roots: Roots, role: str, root_pid: int, apart: Callable[[], Iterable[int]] = tuple
    ) -> None:
        self._proc, self._role, self._root, self._apart = roots.proc, role, root_pid, apart
        self._known: dict[int, int] = {}
        self._cpu_ticks, self._voluntary, self._involuntary = Kept(), Kept(), Kept()
        self._found: Seldom[set[int]] = Seldom()
        self._pss: Seldom[int] = Seldom()
        self._switches: Seldom[tuple[int, int]] = Seldom()
        # Without CONFIG_PROC_CHILDREN the parents of all processes are asked instead.
        own = self._proc / f"{root_pid}/task/{root_pid}"
        self._kernel_lists_children = not own.exists() or (own / "children").exists()

    def read(self, *, at_once: bool = False) -> Reading[RoleState | None]:
        """What all members use together; ``at_once`` with what is otherwise read seldom."""
        try:
            members = self._members(at_once)
        except OSError as error:
            return Reading(None, {f"roles.{self._role}": because(error)})
        unmeasurable = {}
        pss_bytes, pss_age_s = None, 0.0
        try:
            pss_bytes, pss_age_s = self._pss.read(lambda: self._pss_of(members), at_once=at_once)
        except UnreadableError as error:
            unmeasurable[f"roles.{self._role}.pss_bytes"] = str(error)
        switches, switches_age_s = self._switches.read(
            lambda: self._switches_of(members), at_once=at_once
        )
        ticks: dict[Hashable, int] = {(m.pid, m.started): m.cpu_ticks for m in members}
        state = RoleState(
            processes=sum(not member.dead for member in members),
            threads=sum(member.threads for member in members if not member.dead),
            cpu_s=self._cpu_ticks.add(ticks) / _TICKS_PER_S,
            rss_bytes=sum(member.resident_pages for member in members) * _PAGE_BYTES,
            pss_bytes=pss_bytes,
            pss_age_s=pss_age_s,
            voluntary_switches=switches[0] if switches else None,
            involuntary_switches=switches[1] if switches else None,
            switches_age_s=switches_age_s,
        )
        return Reading(state, unmeasurable)

    def _members(self, at_once: bool) -> list[_Process]:
        apart = set(self._apart())
        newest, age_s = self._found.read(lambda: self._search(apart), at_once=at_once)
        found = newest if newest and not age_s else set()
        members = []
        for pid in found | (self._known.keys() - apart):
            process = self._process(pid)
            if process and (pid in found or process.started == self._known[pid]):
                members.append(process)
        self._known = {member.pid: member.started for member in members}
        return members

    def _search(self, apart: Collection[int]) -> set[int]:
        children = self._children if self._kernel_lists_children else self._by_parent()
        found: set[int] = set()
        left = [self._root]
        while left:
            pid = left.pop()
            if pid not in found and pid not in apart:
                found.add(pid)
                left.extend(children(pid))
        return found

    def _children(self, pid: int) -> list[int]:
        children = []
        for thread in self._threads(pid):
            try:
                text = read_file(f"{self._proc}/{pid}/task/{thread}/children")
            except _GONE:
                continue
            children += [int(child) for child in text.split()]
        return children

    def _by_parent(self) -> Callable[[int], list[int]]:
        children: dict[int, list[int]] = {}
        for name in _names_in(str(self._proc)):
            if name.isdecimal() and (fields := self._stat(int(name))):
                children.setdefault(int(fields[1]), []).append(int(name))
        return lambda pid: children.get(pid, [])

    def _threads(self, pid: int) -> list[str]:
        return _names_in(f"{self._proc}/{pid}/task")

    def _stat(self, pid: int) -> list[bytes]:
        """Fields of proc(5)'s ``stat`` from the third on; empty when the process is gone."""
        try:
            text = read_file(f"{self._proc}/{pid}/stat")
        except _GONE:
            return []
        # The name in parentheses may hold spaces and parentheses.
        return text[text.rindex(b")") + 2 :].split()

    def _process(self, pid: int) -> _Process | None:
        fields = self._stat(pid)
        if not fields:
            return None
        return _Process(
            pid,
            started=int(fields[19]),
            dead=fields[0] in (b"Z", b"X"),
            cpu_ticks=int(fields[11]) + int(fields[12]),
            threads=int(fields[17]),
            resident_pages=int(fields[21]),
        )

    def _pss_of(self, members: Iterable[_Process]) -> int:
        """Proportional set size of all.

        Raises:
            UnreadableError: that of one cannot be read, so the sum would be too small.
        """
        total = 0
        for member in members:
            folder = self._proc / str(member.pid)
            try:
                text = read_file(folder / "smaps_rollup")
            except _GONE as error:
                if isinstance(error, FileNotFoundError) and (folder / "stat").exists():
                    raise UnreadableError("this kernel has no smaps_rollup") from None
                continue
            except OSError as error:
                raise UnreadableError(because(error)) from None
            total += _number_after(text, b"\nPss:") * 1024
        return total

    def _switches_of(self, members: Iterable[_Process]) -> tuple[int, int]:
        """Of all threads; the process's own ``status`` counts its first thread only."""
        voluntary: dict[Hashable, int] = {}
        involuntary: dict[Hashable, int] = {}
        for member in members:
            for thread in self._threads(member.pid):
                try:
                    text = read_file(f"{self._proc}/{member.pid}/task/{thread}/status")
                except _GONE:
                    continue
                key = (member.pid, member.started, thread)
                voluntary[key] = _number_after(text, _VOLUNTARY)
                involuntary[key] = _number_after(text, _INVOLUNTARY)
        return self._voluntary.add(voluntary), self._involuntary.add(involuntary)


def _names_in(folder: str) -> list[str]:
    try:
        with os.scandir(folder) as entries:
            return [entry.name for entry in entries]
    except _GONE:
        return []


def _number_after(text: bytes, name: bytes) -> int:
    return int(text[text.index(name) + len(name) :].split(maxsplit=1)[0])
