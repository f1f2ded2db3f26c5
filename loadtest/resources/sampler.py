"""Samples beside a run: a thread that takes one per interval, and never disturbs the run."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from types import TracebackType
from typing import Any

from loadtest.resources.cores import read_cores
from loadtest.resources.device import Device, DeviceState
from loadtest.resources.gpu import Gpus, load_nvml
from loadtest.resources.log import SampleLog
from loadtest.resources.network import read_network
from loadtest.resources.pace import Seldom
from loadtest.resources.processes import Family
from loadtest.resources.rails import INA3221, Rails, find_rails
from loadtest.resources.record import ResourceUse, RoleState, Sample
from loadtest.resources.roots import Reading, Roots
from loadtest.resources.tegrastats import TegraLog
from loadtest.resources.window import use_over

SERVER, GENERATOR = "server", "generator"
ANOTHER_HOST = "it runs on another host"


class Sampler:
    """Use as a context manager around the servers of a run.

    Nothing here raises into the run. When sampling has to end (a full disk), ``ended`` says why,
    and later windows are unmeasurable.

    Attributes:
        latest: the last sample.
        idle_watts: mean power of each rail before the first server; see ``measure_idle``.
        ended: why sampling ended before its time.
    """

    def __init__(
        self,
        path: Path,
        *,
        apart: Callable[[], Iterable[int]] = tuple,
        roots: Roots | None = None,
        nvml: Any = None,
        interval_s: float = 1.0,
        tegrastats: Path | None = None,
    ) -> None:
        """Nothing is read before the ``with`` block.

        ``path`` gets a line per sample. ``apart`` gives process numbers whose families belong to
        no role, such as a Prometheus. ``roots`` and ``nvml`` are another machine's, for tests.
        ``tegrastats`` is a log that grows; its rails count where sysfs shows no INA3221.
        """
        self.latest: Sample | None = None
        self.idle_watts: dict[str, float] = {}
        self.ended: str | None = None
        self._path, self._apart = path, apart
        self._roots = roots or Roots()
        self._nvml = nvml
        self._interval_s = interval_s
        self._log: SampleLog | None = None
        self._gpus: Gpus | None = None
        self._rails = Rails(())
        self._tegrastats = TegraLog(tegrastats) if tegrastats else None
        self._device: Device | None = None
        self._device_pace: Seldom[Reading[DeviceState]] = Seldom()
        self._families: dict[str, Family] = {}
        self._backend: str | None = None
        self._since_unix_s: float | None = None
        self._why_no_server: str | None = None
        self._cpu_s = 0.0
        # Held by whoever takes a sample or changes what is sampled.
        self._lock = threading.RLock()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="resources", daemon=True)

    def __enter__(self) -> Sampler:
        self._guarded(self._open)
        self.sample()
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stop.set()
        self._thread.join()
        self.unwatch()
        with self._lock:
            self._close()

    def watch(self, backend: str, server_pid: int | None, why_no_pid: str = ANOTHER_HOST) -> None:
        """From now on samples are of this backend; counters of both roles begin at 0.

        ``server_pid`` is the server's first process, or ``None`` where its processes cannot be
        seen, for the reason ``why_no_pid``.
        """

        def begin() -> None:
            families = {GENERATOR: Family(self._roots, GENERATOR, os.getpid(), apart)}
            if server_pid is not None:
                families[SERVER] = Family(self._roots, SERVER, server_pid)
            self._families = families
            self._backend, self._since_unix_s = backend, time.time()
            self._why_no_server = why_no_pid if server_pid is None else None
            self._take(at_once=True)

        def apart() -> Iterable[int]:
            return self._apart() if server_pid is None else (server_pid, *self._apart())

        self._guarded(begin)

    def unwatch(self) -> None:
        """The server is about to stop. Until the next ``watch`` no role is sampled, so that a
        server that starts is not taken for a part of the generator.
        """
        self.sample()
        with self._lock:
            self._families.clear()
            self._backend = self._since_unix_s = self._why_no_server = None

    def sample(self) -> None:
        """Take a sample now, with what is otherwise read seldom."""
        self._guarded(lambda: self._take(at_once=True))

    def measure_idle(self, seconds: float) -> None:
        """Wait ``seconds`` and keep the mean power of each rail; without a rail, do not wait."""
        if self.ended or not (self.latest and self.latest.rails):
            return
        self.sample()
        start_unix_s = self.latest.unix_s
        self._stop.wait(seconds)
        rails = self.use(start_unix_s, start_unix_s + seconds, inferences=0).rails
        self.idle_watts = {name: rail.watts for name, rail in rails.items()}

    def use(self, start_unix_s: float, end_unix_s: float, *, inferences: int) -> ResourceUse:
        """What a window that has just ended used; ``inferences`` is its right answers, in rows."""
        self.sample()
        found: list[ResourceUse] = []

        def find() -> None:
            if self._log:
                samples = self._log.around(start_unix_s, end_unix_s)
                found.append(
                    use_over(
                        samples,
                        start_unix_s,
                        end_unix_s,
                        inferences=inferences,
                        idle_watts=self.idle_watts,
                    )
                )

        self._guarded(find)
        if found:
            return found[0]
        why = f"sampling ended: {self.ended}" if self.ended else "nothing is sampled now"
        length_s = end_unix_s - start_unix_s
        return ResourceUse(window_s=length_s, samples=0, unmeasurable={"resources": why})

    def _guarded(self, act: Callable[[], None]) -> None:
        """Whatever goes wrong ends the sampling, and not the run."""
        with self._lock:
            if self.ended is not None:
                return
            try:
                act()
            except Exception as error:
                self.ended = str(error) or repr(error)
                self._close()

    def _open(self) -> None:
        self._gpus = Gpus(self._nvml or load_nvml())
        rails = find_rails(self._roots)
        if self._tegrastats and not any(rail.name.startswith(f"{INA3221}:") for rail in rails):
            rails += self._tegrastats.rails()
        self._rails = Rails([*rails, *self._gpus.rails()])
        self._device = Device(self._roots)
        self._log = SampleLog(self._path)

    def _close(self) -> None:
        if self._gpus:
            self._gpus.close()
        if self._log:
            self._log.close()
        self._gpus = self._log = None

    def _run(self) -> None:
        due_s = time.monotonic()
        while not self._stop.is_set() and self.ended is None:
            # A moment that was missed is not made up for.
            due_s = max(due_s + self._interval_s, time.monotonic())
            if not self._stop.wait(due_s - time.monotonic()):
                self._guarded(lambda: self._take(at_once=False))

    def _take(self, *, at_once: bool) -> None:
        begun_s = time.thread_time()
        sample = self._read(at_once=at_once)
        if self._log:
            self._log.append(sample)
        self.latest = sample
        self._cpu_s += time.thread_time() - begun_s

    def _read(self, *, at_once: bool) -> Sample:
        unix_s, monotonic_s = time.time(), time.monotonic()
        why = {} if self._why_no_server is None else {f"roles.{SERVER}": self._why_no_server}
        roles: dict[str, RoleState] = {}
        for role, family in self._families.items():
            reading = family.read(at_once=at_once)
            why.update(reading.unmeasurable)
            if reading.value is not None:
                roles[role] = reading.value
        cores, network = read_cores(self._roots), read_network(self._roots)
        rails = self._rails.read(monotonic_s)
        gpus = self._gpus.read() if self._gpus else None
        for other in (cores, network, rails, *((gpus,) if gpus else ())):
            why.update(other.unmeasurable)
        device = self._read_device(at_once=at_once)
        why.update(device.unmeasurable)
        if device.value.gpus and not (gpus and gpus.value):
            why.pop("gpus", None)
        return Sample(
            unix_s=unix_s,
            monotonic_s=monotonic_s,
            backend=self._backend,
            since_unix_s=self._since_unix_s,
            roles=roles,
            cores=cores.value,
            network=network.value,
            gpus={**(gpus.value if gpus else {}), **device.value.gpus},
            rails=rails.value,
            clocks=device.value.clocks,
            zones=device.value.zones,
            coolers=device.value.coolers,
            throttles=device.value.throttles,
            memory=device.value.memory,
            power_mode=device.value.power_mode,
            sampling_cpu_s=self._cpu_s,
            unmeasurable=why,
        )

    def _read_device(self, *, at_once: bool) -> Reading[DeviceState]:
        """Nothing at all in between two readings: many cores have many files."""
        if self._device is None:
            return Reading(DeviceState())
        reading, age_s = self._device_pace.read(self._device.read, at_once=at_once)
        return reading if reading is not None and age_s == 0 else Reading(DeviceState())
