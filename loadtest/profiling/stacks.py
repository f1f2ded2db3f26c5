"""Sampled stacks: from folded lines to frames, what each was for, and one tree of all. Pure.

Folded lines are ``frame;frame;frame count``, as https://github.com/brendangregg/FlameGraph reads
them. py-spy puts the processes in front, as ``process 12:"command"``.
"""

from __future__ import annotations

import re
import shlex
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby, pairwise
from pathlib import PurePath

WAITING = "waiting"
INFERENCE = "inference"
OTHER = "other code"

_PROCESS = re.compile(r'process (\d+):"(.*?)"(?:;|(?= \d+$))')
_PYTHON = re.compile(r"(.*) \(((?:[^()]*\.py|<[^()]*>)(?::\d+)?)\)$")
_LINE = re.compile(r":\d+$")
_ADDRESS = re.compile(r"0x[0-9a-f]+ \((.*)\)$")
_MANGLED = re.compile(r"^_(?:R|ZN)\w+")

_INLINED = re.compile(r"^Py_X?(?:DECREF|INCREF) ")
"""What a compiler put into other functions is named as if it had called them."""

_BUILD = re.compile(r"\.(?:cpython-[\w-]+|abi3)(?=\.so)")
_LIBRARY = re.compile(r"\((?:.*/)?([^/.]+)\S*\)")

_WAITS = re.compile(
    r"epoll_p?wait|\bp?poll\b|\bp?select\b|futex|sem_(timed|clock)?wait|pthread_cond|nanosleep"
    r"|PyThread_acquire_lock|thread::park|6thread.*4park|\baccept4?\b|\bwait4\b|waitpid"
)
_WAITS_IN_PYTHON = re.compile(
    r"^(Condition\.wait|Queue\.get|Event\.wait|Semaphore\.acquire|EpollSelector\.select|wait|sleep"
    r"|Arbiter\.sleep|SelectSelector\.select|PollSelector\.select) \("
)
_GROUPS = (
    (INFERENCE, re.compile(r"\((onnxruntime|torch)/|\(lib(onnxruntime|torch)")),
    ("batching", re.compile(r"\(serving/batching/|\(serving/rows")),
    (
        "the protocol",
        re.compile(r"\(serving/protocol/|\(serving/validation|/onnxruntime/plan\.py|\bjson/"),
    ),
    ("pictures", re.compile(r"\(serving/fronthalf/|\(PIL/")),
    ("metrics", re.compile(r"\(serving/(metrics|statistics|exposition)|\(prometheus_client/")),
    (
        "HTTP, gRPC and the event loop",
        re.compile(
            r"/onnxruntime/http/|\(uvicorn|\(starlette/|\(fastapi/|\(httptools/|\(h11/|\(uvloop/"
            r"|\(asyncio/|\(anyio/|\(gunicorn/|\(loop\.c|\(selectors\.py|\(grpc/|pygrpc_native/"
        ),
    ),
    ("the server's own code", re.compile(r"\(serving/|\(model\.py")),
)
GROUPS = (*(name for name, _ in _GROUPS), OTHER)


@dataclass(frozen=True)
class Stack:
    """One stack and how often it was sampled.

    Attributes:
        processes: from the server's first process to the one that was sampled, as pid and command.
        frames: from the outermost to the innermost.
    """

    processes: tuple[tuple[int, str], ...]
    frames: tuple[str, ...]
    count: int

    @property
    def group(self) -> str:
        """What was being done: ``WAITING``, or one of ``GROUPS``."""
        return group_of(self.frames)


def parse(text: str) -> tuple[Stack, ...]:
    """py-spy's folded lines, tidied; a line that is none is left out."""
    return tuple(_stacks(text.splitlines()))


def _stacks(lines: Iterable[str]) -> Iterator[Stack]:
    for line in lines:
        rest, processes = line, []
        while found := _PROCESS.match(rest):
            processes.append((int(found[1]), name_of(found[2])))
            rest = rest[found.end() :]
        told, _, count = rest.rpartition(" ")
        if count.isdecimal():
            frames = tuple(tidied(told.split(";"))) if told else ()
            yield Stack(tuple(processes), frames, int(count))


def name_of(command: str) -> str:
    """``gunicorn`` for ``/usr/bin/python -m gunicorn …``: what a person calls the process."""
    try:
        words = shlex.split(command)
    except ValueError:
        words = command.split()
    if not words:
        return "?"
    program = PurePath(words[0]).name
    if not program.startswith("python"):
        return program
    for before, word in pairwise(words):
        if before == "-m":
            return word
        if word.endswith(".py"):
            return PurePath(word).name
    return program


def tidied(frames: Sequence[str]) -> Iterator[str]:
    """Without line numbers, without what starts a thread, and libraries without symbols as one.

    The unwinder reaches the thread's beginning in some samples and not in others.
    """
    first = next((i for i, frame in enumerate(frames) if _PYTHON.match(frame)), 0)
    plain = [_plain(frame) for frame in frames[first:] if not _INLINED.match(frame)]
    for frame, _ in groupby(plain):
        yield frame


def _plain(frame: str) -> str:
    python = _PYTHON.match(frame)
    if python:
        return f"{python[1]} ({_LINE.sub('', python[2])})"
    unknown = _ADDRESS.match(frame)
    if unknown:
        return f"({unknown[1]})"
    name, bracket, where = frame.rpartition(" (")
    where = _LINE.sub("", where.removesuffix(")"))
    return f"{name} ({where})" if bracket else frame


def group_of(frames: Sequence[str]) -> str:
    """The innermost frame that tells decides; a wait inside the runtime is inference."""
    inside = list(reversed(frames))
    if any(_GROUPS[0][1].search(frame) for frame in inside):
        return INFERENCE
    if _waits(inside):
        return WAITING
    for frame in inside:
        for name, form in _GROUPS:
            if form.search(frame):
                return name
    return OTHER


def _waits(inside: Sequence[str]) -> bool:
    """By the frames below the innermost Python function, and that one itself."""
    for frame in inside:
        if _PYTHON.match(frame):
            return bool(_WAITS_IN_PYTHON.match(frame))
        if _WAITS.search(frame):
            return True
    return False


@dataclass
class Node:
    """A frame below its callers; ``count`` has the samples of what it calls as well."""

    name: str
    group: str
    count: int = 0
    children: dict[str, Node] = field(default_factory=dict)


def tree_of(stacks: Iterable[Stack], root: str) -> Node:
    """All stacks that did not wait, merged from the outermost frame; a node has its main group."""
    top = Node(root, OTHER)
    groups: dict[int, Counter[str]] = {}
    for stack in stacks:
        group = stack.group
        if group == WAITING:
            continue
        place = top
        for name in ("", *(f"{name} ({pid})" for pid, name in stack.processes), *stack.frames):
            if name:
                place = place.children.setdefault(name, Node(name, OTHER))
            place.count += stack.count
            groups.setdefault(id(place), Counter())[group] += stack.count
            place.group = groups[id(place)].most_common(1)[0][0]
    return top


def functions_of(stacks: Iterable[Stack]) -> list[tuple[str, str, int]]:
    """Innermost functions of busy stacks, with group and samples, the most sampled first."""
    counts: Counter[tuple[str, str]] = Counter()
    for stack in stacks:
        if stack.frames and stack.group != WAITING:
            counts[stack.frames[-1], stack.group] += stack.count
    return [(name, group, count) for (name, group), count in counts.most_common()]


def readable(frame: str) -> str:
    """A frame for people: no name that a compiler made, no path of a library."""
    library = _LIBRARY.fullmatch(frame)
    return f"in {library[1]}" if library else _MANGLED.sub("…", _BUILD.sub("", frame))
