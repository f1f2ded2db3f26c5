"""What an outage of the link does to cameras that offload, with a model onboard to fall back to.

A simulation. Bytes cross the link's model; how long the two servers take is drawn from what was
measured. A frame that no answer came to within the deadline is given up, and the newest one is
computed onboard; so are all that follow, until the late answer shows that the link is back. Pure.
"""

from __future__ import annotations

import heapq
import math
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np
import numpy.typing as npt

from loadtest.camera_schedule import Cameras, FramePolicy, Frames, Numbers
from loadtest.links.model import Flow, Link, link_of_connection
from loadtest.links.profile import LinkProfile, Outages
from loadtest.schedule import Times

Mode = Literal["onboard", "offload", "fallback"]
Floats = npt.NDArray[np.float64]
Chosen = npt.NDArray[np.bool_]
_NS = 1_000_000_000
_NEVER = -1


@dataclass(frozen=True)
class Scene:
    """What is simulated.

    Attributes:
        onboard_ns, remote_ns: what a frame takes on either server, to draw from; the way there and
            back is in neither.
        outage_s: start and end, in which nothing passes the link.
        link_per_camera: each has a link of its own, with the outage at the same time.
    """

    cameras: Cameras
    policy: FramePolicy
    deadline_ns: int
    link: LinkProfile
    request_bytes: int
    reply_bytes: int
    onboard_ns: Sequence[int]
    remote_ns: Sequence[int]
    length_s: float
    outage_s: tuple[float, float]
    link_per_camera: bool = False


@dataclass(frozen=True)
class Answers:
    """One row per frame that was due, in that order; ``done_ns`` is -1 for one never answered."""

    stream: Numbers
    due_ns: Times
    done_ns: Times
    onboard: Chosen

    @property
    def answered(self) -> Chosen:
        return np.greater(self.done_ns, _NEVER)

    @property
    def ages_ns(self) -> Times:
        """Of the frames that were answered."""
        return (self.done_ns - self.due_ns)[self.answered]

    def of(self, chosen: Chosen) -> Answers:
        """Of these frames alone."""
        return Answers(
            self.stream[chosen], self.due_ns[chosen], self.done_ns[chosen], self.onboard[chosen]
        )

    def missed_share(self, deadline_ns: int) -> float:
        """Of the frames: answered later than that after they were due, or never."""
        if not len(self.due_ns):
            return 0.0
        in_time = int((self.ages_ns <= deadline_ns).sum())
        return (len(self.due_ns) - in_time) / len(self.due_ns)


@dataclass
class _Camera:
    """Attributes: ``sent`` is the request that is waited for, ``given_up`` one that is not any more
    but whose answer will tell that the link is back.
    """

    link: Link
    waiting: deque[int] = field(default_factory=deque)
    busy: bool = False
    sent: int | None = None
    given_up: int | None = None
    up: Flow = field(default_factory=Flow)
    down: Flow = field(default_factory=Flow)


def simulate(scene: Scene, mode: Mode, seed: int = 0) -> Answers:
    """The frames that are due within the scene, each followed to its end."""
    return _Run(scene, mode, seed).answers()


class _Run:
    """One simulation: events in the order of their moments."""

    def __init__(self, scene: Scene, mode: Mode, seed: int) -> None:
        rng = np.random.default_rng(seed)
        self._scene, self._mode = scene, mode
        self._due_ns, self._stream = _frames(scene, seed)
        self._done_ns = np.full(len(self._due_ns), _NEVER, np.int64)
        self._onboard = np.zeros(len(self._due_ns), np.bool_)
        self._onboard_ns = rng.choice(np.asarray(scene.onboard_ns), len(self._due_ns))
        self._remote_ns = rng.choice(np.asarray(scene.remote_ns), len(self._due_ns))
        start_s, end_s = scene.outage_s
        profile = replace(scene.link, outages=Outages(((start_s, end_s - start_s),)))
        shared = Link(profile, seed)
        self._cameras: list[_Camera] = [
            _Camera(link_of_connection(shared, number) if scene.link_per_camera else shared)
            for number in range(scene.cameras.count)
        ]
        self._events: list[tuple[int, int, Callable[[int, int], None], int]] = []
        self._count = 0

    def answers(self) -> Answers:
        for frame, due_ns in enumerate(self._due_ns.tolist()):
            self._at(due_ns, self._due, frame)
        while self._events:
            now_ns, _, happens, frame = heapq.heappop(self._events)
            happens(now_ns, frame)
        return Answers(self._stream, self._due_ns, self._done_ns, self._onboard)

    def _at(self, moment_ns: int, happens: Callable[[int, int], None], frame: int) -> None:
        self._count += 1
        heapq.heappush(self._events, (moment_ns, self._count, happens, frame))

    def _camera(self, frame: int) -> _Camera:
        return self._cameras[int(self._stream[frame])]

    def _due(self, now_ns: int, frame: int) -> None:
        camera = self._camera(frame)
        if self._scene.policy == "latest-only":
            camera.waiting.clear()
        camera.waiting.append(frame)
        self._begin(now_ns, camera)

    def _begin(self, now_ns: int, camera: _Camera) -> None:
        """Let the next frame that is still worth it be computed, where the camera is free."""
        while not camera.busy and camera.waiting:
            frame = camera.waiting.popleft()
            deadline_ns = int(self._due_ns[frame]) + self._scene.deadline_ns
            if self._scene.policy == "drop-late" and now_ns >= deadline_ns:
                continue
            camera.busy = True
            if self._mode == "onboard" or camera.given_up is not None:
                self._at(now_ns + int(self._onboard_ns[frame]), self._computed, frame)
                return
            camera.sent = frame
            size_bytes = self._scene.request_bytes
            came_ns = camera.link.uplink.carry(camera.up, now_ns, size_bytes)
            self._at(came_ns, self._came, frame)
            if self._mode == "fallback":
                self._at(max(deadline_ns, now_ns), self._give_up, frame)

    def _came(self, now_ns: int, frame: int) -> None:
        """The request is at the server."""
        self._at(now_ns + int(self._remote_ns[frame]), self._served, frame)

    def _served(self, now_ns: int, frame: int) -> None:
        camera, size_bytes = self._camera(frame), self._scene.reply_bytes
        came_ns = camera.link.downlink.carry(camera.down, now_ns, size_bytes)
        self._at(came_ns, self._answered, frame)

    def _answered(self, now_ns: int, frame: int) -> None:
        camera = self._camera(frame)
        if camera.given_up == frame:
            camera.given_up = None
            return
        camera.sent = None
        self._finish(now_ns, frame)

    def _give_up(self, now_ns: int, frame: int) -> None:
        """No answer by the deadline: this frame, or one that came since, is computed onboard."""
        camera = self._camera(frame)
        if camera.sent != frame:
            return
        camera.sent, camera.given_up, camera.busy = None, frame, False
        if self._scene.policy != "latest-only" or not camera.waiting:
            camera.waiting.appendleft(frame)
        self._begin(now_ns, camera)

    def _computed(self, now_ns: int, frame: int) -> None:
        self._onboard[frame] = True
        self._finish(now_ns, frame)

    def _finish(self, now_ns: int, frame: int) -> None:
        camera = self._camera(frame)
        self._done_ns[frame] = now_ns
        camera.busy = False
        self._begin(now_ns, camera)


def _frames(scene: Scene, seed: int) -> Frames:
    """Moments and streams of the frames that are due within the scene."""
    each = math.ceil(scene.length_s * scene.cameras.fps)
    due_ns, stream = scene.cameras.all_arrivals(each, seed)
    within = due_ns < round(scene.length_s * _NS)
    return due_ns[within], stream[within]


def longest_gap_ns(answers: Answers, length_s: float) -> int:
    """Between answers of one camera, from the scene's beginning to its end."""
    end_ns = round(length_s * _NS)
    longest = 0
    for number in range(int(answers.stream.max(initial=0)) + 1):
        done = answers.done_ns[(answers.stream == number) & answers.answered]
        within = np.sort(done[done < end_ns])
        longest = max(longest, int(np.diff(np.concatenate([[0], within, [end_ns]])).max()))
    return longest


def newest_answer(answers: Answers, step_s: float, camera: int = 0) -> tuple[Floats, Floats]:
    """How old a camera's newest answer became before the next came: seconds, milliseconds.

    It ages by a second a second; where the next is long in coming, a point every ``step_s``.
    """
    own = (answers.stream == camera) & answers.answered
    order = np.argsort(answers.done_ns[own], kind="stable")
    done_s = answers.done_ns[own][order] / _NS
    newest_s = np.maximum.accumulate(answers.due_ns[own][order]) / _NS
    times_s: list[float] = []
    ages_ms: list[float] = []
    for before_s, next_s, due_s in zip(done_s, done_s[1:], newest_s, strict=False):
        between = np.append(np.arange(before_s + step_s, next_s, step_s), next_s)
        times_s.extend(between.tolist())
        ages_ms.extend(((between - due_s) * 1e3).tolist())
    return np.array(times_s), np.array(ages_ms)
