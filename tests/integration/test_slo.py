"""Searches on servers whose answer can be computed, and what a kill leaves of them."""

from __future__ import annotations

import math
import os
import shutil
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest

from loadtest.cli import main
from loadtest.contest import Contest
from loadtest.folder import ResultsFolder
from loadtest.manifest import describe_run
from loadtest.prepare import payloads_from
from loadtest.resources.sampler import Sampler
from loadtest.results import Settings
from loadtest.rig import Rig
from loadtest.runner import Fleet, generate
from loadtest.searched import ProbeRecord, SearchRecord
from loadtest.slo.search import MOST_PROBES
from loadtest.summary import write_summary
from loadtest.trial import StopRule
from loadtest.trials import PlannedTrial
from serving.errors import UsageError
from serving.models.repository import Model
from serving.models.stored_samples import FOLDER, write_arrays
from serving.parity import reference_for
from serving.protocol import InferRequest, encode_response
from tests.integration.test_generator import Bench
from tests.sample_models import write_tiny
from tests.sample_trials import settings

SERVICE_MS = 0.5
CAPACITY_RPS = 1000 / SERVICE_MS
LIMIT_MS = 2.2


@dataclass
class Listener:
    """Notes the probes; may act once after the n-th."""

    after: dict[int, Callable[[], None]] = field(default_factory=dict)
    probes: list[ProbeRecord] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)

    def stage(self, text: str) -> None: ...

    def warning(self, text: str) -> None:
        self.warnings.append(text)

    def backend_excluded(self, label: str, reason: str) -> None:
        raise AssertionError(f"{label}: {reason}")

    def search_done(self, record: SearchRecord) -> None: ...

    def probe_done(self, arm: str, repeat: int, probe: ProbeRecord) -> None:
        assert (arm.startswith("remote:"), repeat) == (True, 1)
        assert probe.number <= MOST_PROBES
        self.probes.append(probe)
        self.after.pop(len(self.probes), lambda: None)()


def interrupt() -> None:
    raise KeyboardInterrupt


@pytest.fixture(scope="module")
def one_row(tmp_path_factory: pytest.TempPathFactory) -> Model:
    """A model with one sample, so that a server of one answer is right."""
    model = write_tiny(tmp_path_factory.mktemp("repository"))
    (model.folder / FOLDER).mkdir()
    row = np.linspace(-1, 1, 64, dtype=np.float32)[None]
    write_arrays(model.folder / FOLDER / "only.npz", {"x": row})
    return model


@pytest.fixture(scope="module")
def queue(one_row: Model, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Address of a server of constant service time that serves one request at a time."""
    folder = tmp_path_factory.mktemp("truth")
    payload = payloads_from(one_row, reference_for(one_row))[0]
    wanted = InferRequest((), binary_default=True)
    body, length = encode_response("tiny", 1, wanted, [*payload.expected.values()])
    (folder / "reply").write_bytes(body)
    (folder / "length").write_text(str(length))
    arguments = ("--distribution", "constant", "--mean-ms", str(SERVICE_MS), "--serial")
    with Bench(folder).truth(*arguments) as (url, _):
        yield url


def asked(url: str, **changes: object) -> Settings:
    """Windows of one second have a single batch, so that no bound is widened by chance."""
    given: dict[str, object] = {
        "backends": (f"remote:{url}",),
        "scenario": "server",
        "level_name": "requests/s",
        "levels": (),
        "repeats": 1,
        "duration_s": 1.0,
        "limit_s": 4.0,
        "objectives": (f"p90<={LIMIT_MS}ms",),
    }
    return settings(**{**given, **changes})


def search(
    model: Model, folder: Path, wanted: Settings, listener: Listener
) -> tuple[SearchRecord, ...]:
    results = ResultsFolder(folder)
    if not results.exists:
        results.write_manifest(describe_run(model, wanted, "infersweep slo"))
    rig = Rig(wanted, model, 2, results, listener, Fleet(cpus=(1,)))
    Contest(rig, [rig.arm(label) for label in wanted.backends], listener).run()
    return write_summary(results).searches


def waits_up_to(wait_ms: float, utilisation: float) -> float:
    """P(W <= t) of M/D/1 (Erlang 1909; Tijms, *A First Course in Stochastic Models*, 9.3)."""
    steps = wait_ms / SERVICE_MS
    terms = (
        (utilisation * (k - steps)) ** k / math.factorial(k) * math.exp(-utilisation * (k - steps))
        for k in range(int(steps) + 1)
    )
    return (1 - utilisation) * sum(terms)


def crossing_rps(limit_ms: float) -> float:
    """Where 90% of the requests are answered within the limit."""
    low, high = 0.0, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        kept = waits_up_to(limit_ms - SERVICE_MS, middle) >= 0.9
        low, high = (middle, high) if kept else (low, middle)
    return low * CAPACITY_RPS


def test_the_formula_has_its_known_values() -> None:
    """The share that does not wait is the idle one; the mean wait is rho D / (2 (1 - rho))."""
    assert waits_up_to(0.0, 0.7) == pytest.approx(0.3)
    times = np.arange(0, 40 * SERVICE_MS, SERVICE_MS / 50)[:500]
    beyond = [1 - waits_up_to(float(t), 0.5) for t in times]
    assert np.trapezoid(beyond, times) == pytest.approx(0.5 * SERVICE_MS / (2 * 0.5), rel=0.01)
    assert 0.65 < crossing_rps(LIMIT_MS) / CAPACITY_RPS < 0.75


@pytest.fixture(scope="module")
def killed(one_row: Model, queue: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a search that was killed after its second probe, in the middle of a write."""
    folder = tmp_path_factory.mktemp("killed") / "out"
    with pytest.raises(KeyboardInterrupt):
        search(one_row, folder, asked(queue), Listener({2: interrupt}))
    with (folder / "trials.jsonl").open("a") as stream:
        stream.write('{"id": "remo')
    return folder


TURNS = 3
"""What else a machine does slows a service of half a millisecond; one search in peace is enough."""


def test_a_crossing_that_can_be_computed_is_found_also_over_a_kill(
    one_row: Model, queue: str, killed: Path, tmp_path: Path
) -> None:
    (before,) = write_summary(ResultsFolder(killed)).searches
    assert not before.complete
    seen = []
    for turn in range(TURNS):
        folder = Path(shutil.copytree(killed, tmp_path / f"out{turn}"))
        listener = Listener()
        wanted = asked(queue)
        (found,) = search(one_row, folder, wanted, listener)
        assert found.probes[:2] == before.probes
        assert listener.probes == list(found.probes[2:])
        assert search(one_row, folder, wanted, Listener({1: interrupt})) == (found,)
        seen.append(found.answer)
        if is_right(found):
            return
    pytest.fail(f"the crossing was never found: {seen}")


def is_right(found: SearchRecord) -> bool:
    """Whether the answer lies within 10% of what the theory of queues says."""
    if found.answer.kind != "found":
        return False
    # What the wire takes is no part of the queue.
    bare_ms = found.closed[0].latencies[0].value_ms
    met_rps, missed_rps = found.answer.rate_rps, found.answer.missed_rps
    assert bare_ms is not None
    assert met_rps is not None
    assert missed_rps is not None
    truth_rps = crossing_rps(LIMIT_MS - (bare_ms - SERVICE_MS))
    return met_rps <= 1.1 * truth_rps and missed_rps >= 0.9 * truth_rps


def test_a_rate_above_the_capacity_is_given_up_early_and_keeps_its_numbers(
    one_row: Model, queue: str, tmp_path: Path
) -> None:
    """Half as much again as the server can do: the queue passes the limit in milliseconds."""
    folder = ResultsFolder(tmp_path / "out")
    wanted = asked(queue)
    folder.write_manifest(describe_run(one_row, wanted, "infersweep slo"))
    listener = Listener()
    rig = Rig(wanted, one_row, 2, folder, listener, Fleet(cpus=(1,)))
    rig.open()
    with (
        Sampler(folder.resources) as sampler,
        rig.ready(rig.arm(wanted.backends[0]), sampler) as ready,
    ):
        assert ready is not None
        rate_rps, length_s = 1.5 * CAPACITY_RPS, 8.0
        stop = StopRule(percentiles=((0.9, round(LIMIT_MS * 1e6)),), failures=0.001)
        spec = rig.spec(ready, (rate_rps,), "over").model_copy(
            update={"stop": stop, "duration_s": length_s}
        )
        (output,) = generate(spec, rig.fleet, rig.log("over"))
        trial = rig.keep(PlannedTrial(ready.arm.name, rate_rps, 1, 1), output, ready, sampler)
    assert trial.cut is not None
    assert "p90 allows" in trial.cut
    assert trial.window_s < length_s / 2
    assert trial.warmup_s < length_s / 2
    assert not [reason for reason in trial.reasons if "client-bound" not in reason]
    assert trial.outcomes["ok"] == trial.sent
    assert trial.planned == sum(trial.outcomes.values())


def test_less_than_the_bare_service_is_not_reachable_and_the_best_is_told(
    one_row: Model, queue: str, killed: Path, tmp_path: Path
) -> None:
    """One probe tells: a service of 0.5 ms is not answered within 0.3 ms at any rate.

    The closed loops are those of the other search, so that they need not be measured again.
    """
    wanted = asked(queue, objectives=("p90<=0.3ms",))
    known, folder = ResultsFolder(killed), ResultsFolder(tmp_path / "out")
    folder.write_manifest(describe_run(one_row, wanted, "infersweep slo"))
    for trial in known.read_trials()[:2]:
        folder.append_trial(trial, known.read_histograms(trial.id))
    listener = Listener()
    (found,) = search(one_row, folder.path, wanted, listener)
    assert found.answer.kind == "not reachable"
    # What else the machine does may void a probe, which is then measured once more.
    assert listener.probes[-1].verdict == "missed"
    assert "met" not in {probe.verdict for probe in listener.probes}
    assert found.answer.best_seen is not None
    assert found.answer.sentence.startswith("Not reachable: ")


def test_what_cannot_be_measured_is_refused_before_any_load(
    one_row: Model, queue: str, tmp_path: Path
) -> None:
    wanted = asked(queue, objectives=("p90<=2ms", "memory<=400MB"))
    with pytest.raises(UsageError, match="it runs on another host"):
        search(one_row, tmp_path / "out", wanted, Listener())
    assert not (tmp_path / "out" / "trials.jsonl").exists()


def test_compare_asks_each_backend_once_for_what_is_not_reachable(
    one_row: Model, queue: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The command from its options to its page; the server has two names here."""
    labels = [f"remote:{queue}", f"remote:{queue.replace('127.0.0.1', 'localhost')}"]
    out = tmp_path / "out"
    asked_for = (
        *("compare", "--model", one_row.name, "--repository", str(one_row.root)),
        *("--backends", ",".join(labels), "--objective", "p90<=0.3ms", "--repeats", "2"),
        *("--duration", "1", "--limit", "4", "--out", str(out)),
    )
    monkeypatch.setattr(sys, "argv", ["infersweep", *asked_for])
    usable = os.sched_getaffinity(0)
    try:
        with pytest.raises(SystemExit) as left:
            main()
    finally:
        os.sched_setaffinity(0, usable)
    assert left.value.code == 0
    found = ResultsFolder(out).read_summary()
    assert found.complete
    assert {(one.backend, one.repeat) for one in found.searches} == {(name, 1) for name in labels}
    assert set(found.ranking.unranked) == set(labels)
    assert found.ranking.sentence in (out / "report.html").read_text()
