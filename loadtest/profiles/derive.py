"""A profile from the folder of the run that measured it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from importlib.metadata import version

import numpy as np

from loadtest.analysis import point_of
from loadtest.folder import ResultsFolder
from loadtest.profiles.measure import OPEN
from loadtest.profiles.record import Energy, Profile, Repeat, SweepPoint
from loadtest.profiles.scheduling import Scheduling, scheduled, scheduling_of
from loadtest.profiles.service import (
    Loop,
    OpenLoop,
    Service,
    Times,
    may_rest,
    service_of,
    with_open,
)
from loadtest.results import OUTCOMES, Manifest, Trial
from loadtest.steadiness import UNSTEADY
from serving.errors import ResultsError

_OK = OUTCOMES.index("ok")
_FEWEST_ALONE = 20


def profile_of(folder: ResultsFolder, *, servers: int | None) -> Profile:
    """What the run found of its one backend; ``servers`` stand behind its address.

    Raises:
        ResultsError: the folder holds no run whose requests were kept, or no finished trial.
    """
    manifest = folder.read_manifest()
    settings = manifest.settings
    label = settings.backends[0]
    record = folder.read_backends().get(label)
    trials = folder.read_trials()
    configuration = _configuration(folder, label, settings.model)
    if record is None or record.excluded or not trials or not configuration:
        why = record.excluded if record and record.excluded else "nothing was measured"
        raise ResultsError(f"{folder.path} gives no profile: {why}", hint="Measure it again.")
    scheduling = scheduling_of(label, configuration)
    found = [_Measured.of(folder, trials, n, scheduling) for n in _repeats(trials)]
    reasons = tuple(dict.fromkeys(r for one in found for r in one.faults(scheduling)))
    energy, missing = _energy(trials)
    return Profile(
        created=manifest.created,
        command=manifest.command,
        infersweep_version=version("infersweep"),
        machine=manifest.machine,
        versions=manifest.versions,
        model=settings.model,
        model_version=manifest.model_version,
        model_sha256=manifest.model_sha256,
        backend=label,
        facts=record.facts,
        setting=settings.setting,
        servers=servers,
        server_cpus=len(settings.server_cpus),
        configuration=configuration,
        request_bytes=manifest.wire.request_bytes,
        reply_bytes=folder.reply_bytes(),
        window_s=settings.duration_s,
        repeats=tuple(one.repeat(folder, label) for one in found),
        sweep=tuple(_sweep(folder, manifest, trials)),
        energy=energy,
        energy_missing=missing,
        verdict="INVALID" if reasons else "VALID",
        reasons=reasons,
    )


def _configuration(folder: ResultsFolder, label: str, model: str) -> str:
    """Of the model that is scheduled, as it was served; empty where none was written."""
    served = folder.read_served(label, model) or ""
    behind = scheduled(served, model)
    return served if behind == model else folder.read_served(label, behind) or ""


def _repeats(trials: Sequence[Trial]) -> list[int]:
    return sorted({trial.repeat for trial in trials})


class _Measured:
    """One start of the server."""

    def __init__(
        self,
        number: int,
        trials: Sequence[Trial],
        service: Service,
        alone_ns: Times,
        delay_ns: int | None,
    ) -> None:
        self.number, self._trials, self._delay_ns = number, trials, delay_ns
        self._service, self._alone_ns = service, alone_ns

    @classmethod
    def of(
        cls, folder: ResultsFolder, trials: Sequence[Trial], number: int, scheduling: Scheduling
    ) -> _Measured:
        own = [trial for trial in trials if trial.repeat == number and _tells_service(trial)]
        loops: list[Loop] = []
        open_loops: list[OpenLoop] = []
        alone_ns = np.zeros(0, np.int64)
        for trial in own:
            requests = folder.read_requests(trial.id)
            right = requests[requests["outcome"] == _OK]
            if trial.scenario == OPEN:
                open_loops.append(OpenLoop(right["due"], right["done"]))
                continue
            loops.append(Loop(int(trial.level), right["due"], right["done"]))
            if trial.level == 1:
                alone_ns = np.sort(right["done"] - right["sent"])
        instances, largest = scheduling.instances, scheduling.largest
        closed = service_of(loops, instances=instances, largest=largest)
        delay_ns = _delay_ns(alone_ns, closed)
        service = with_open(closed, open_loops, instances=instances, largest=largest)
        return cls(number, own, service, alone_ns, delay_ns)

    def faults(self, scheduling: Scheduling) -> Iterator[str]:
        """Why nothing can be planned from it."""
        if scheduling.unplannable:
            yield scheduling.unplannable
        if len(self._alone_ns) < _FEWEST_ALONE:
            yield f"repeat {self.number}: too few VALID requests of one user alone"
        if may_rest(self._alone_ns, scheduling.delay_ns):
            yield (
                f"repeat {self.number}: the queue waits {scheduling.delay_ns / 1e6:g} ms for "
                "company, about as long as a request is served: instances rest, so their times "
                "cannot be told"
            )
        if not self._service.clear:
            what = (
                "in which order requests were served"
                if scheduling.largest == 1
                else "the replies of one batch from those of the next"
            )
            doubt = f"{self._service.blurred:.0%} are in doubt"
            yield f"repeat {self.number}: one cannot tell {what} ({doubt})"
        missing = {1, scheduling.largest} - set(self._service.times_ns)
        if missing:
            sizes = " and ".join(str(size) for size in sorted(missing))
            yield f"repeat {self.number}: too few batches of {sizes}"

    def repeat(self, folder: ResultsFolder, label: str) -> Repeat:
        starts = [start for start in folder.read_starts() if start.backend == label]
        own = [start for start in starts if start.repeat == self.number]
        memory = [trial.server_rss_bytes for trial in self._trials if trial.server_rss_bytes]
        return Repeat(
            service_ns={
                size: tuple(times.tolist()) for size, times in self._service.times_ns.items()
            },
            alone_ns=tuple(self._alone_ns.tolist()),
            idle_ns=tuple(self._service.idle_ns.tolist()),
            delay_ns=self._delay_ns,
            start_s=own[0].first_answer_s if own else None,
            rss_bytes=max(memory, default=None),
        )


def _tells_service(trial: Trial) -> bool:
    """An open loop near saturation need not be steady: how long a batch takes does not need it."""
    if trial.verdict == "VALID":
        return True
    return trial.scenario == OPEN and all(why.startswith(UNSTEADY) for why in trial.reasons)


def _delay_ns(alone_ns: Times, closed: Service) -> int | None:
    """What a lone request takes besides its service; both of closed loops, which are alike."""
    if 1 not in closed.times_ns or not len(alone_ns):
        return None
    return max(round(float(alone_ns.mean()) - float(closed.times_ns[1].mean())), 0)


def _sweep(
    folder: ResultsFolder, manifest: Manifest, trials: Sequence[Trial]
) -> Iterator[SweepPoint]:
    for level in sorted(manifest.settings.levels):
        own = [trial for trial in trials if trial.level == level and trial.scenario != OPEN]
        if not own:
            continue
        point = point_of(own, folder.read_histograms)
        due = sum(point.outcomes.values())
        yield SweepPoint(
            users=int(level),
            requests_per_s=point.requests_per_s,
            response_time_ms=point.response_time_ms,
            failed_share=1 - point.outcomes["ok"] / due if due else 1.0,
            verdict=point.verdict,
            reasons=point.reasons,
        )


def _energy(trials: Sequence[Trial]) -> tuple[Energy | None, str | None]:
    """Of the window with the most right answers, in which the server rests least."""
    busiest = max(trials, key=lambda trial: trial.outcomes["ok"] / trial.window_s)
    use = busiest.resources
    if use is None or use.energy is None:
        missing = use.unmeasurable if use else {}
        told = (why for name, why in missing.items() if name.startswith(("rails", "energy")))
        return None, next(told, "no power rail was read")
    watts = use.energy.joules / use.window_s
    source = ", ".join(use.energy.rails)
    return Energy(idle_w=use.energy.idle_watts, active_w=watts, source=source), None
