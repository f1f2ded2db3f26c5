"""Searches on servers whose answer can be computed, and what a kill leaves of them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest

from loadtest.folder import ResultsFolder
from loadtest.manifest import describe_run
from loadtest.prepare import payloads_from
from loadtest.results import Settings
from loadtest.rig import Rig
from loadtest.runner import Fleet
from loadtest.slo.record import FILE, ProbeRecord, SearchRecord
from loadtest.slo.run import ObjectiveSearch
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

    def probe_done(self, probe: ProbeRecord, most: int) -> None:
        assert probe.number <= most
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


def search(
    model: Model, folder: Path, url: str, listener: Listener, **changes: object
) -> SearchRecord:
    asked: Settings = settings(
        **{
            "backends": (f"remote:{url}",),
            "scenario": "server",
            "level_name": "requests/s",
            "levels": (),
            "repeats": 1,
            "duration_s": 1.5,
            "limit_s": 4.0,
            "objectives": (f"p90<={LIMIT_MS}ms",),
            **changes,
        }
    )
    results = ResultsFolder(folder)
    if not results.exists:
        results.write_manifest(describe_run(model, asked, "infersweep slo"))
    rig = Rig(asked, model, 2, results, listener, Fleet(cpus=(1,)))
    return ObjectiveSearch(rig, listener).run()


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


def test_a_crossing_that_can_be_computed_is_found_also_over_a_kill(
    one_row: Model, queue: str, tmp_path: Path
) -> None:
    first = Listener({2: interrupt})
    with pytest.raises(KeyboardInterrupt):
        search(one_row, tmp_path / "out", queue, first)
    # What a SIGKILL in the middle of a write would leave.
    with (tmp_path / "out" / "trials.jsonl").open("a") as stream:
        stream.write('{"id": "remo')
    then = Listener()
    found = search(one_row, tmp_path / "out", queue, then)
    assert [probe.number for probe in first.probes] == [1, 2]
    assert then.probes[0].number == 3
    assert [p.rate_rps for p in found.probes[:2]] == [p.rate_rps for p in first.probes]
    assert found.complete
    assert found.answer.kind == "found"
    assert found.answer.rate_rps is not None
    assert found.answer.missed_rps is not None
    # What the wire takes is no part of the queue.
    bare_ms = found.closed[0].latencies[0].value_ms
    assert bare_ms is not None
    truth_rps = crossing_rps(LIMIT_MS - (bare_ms - SERVICE_MS))
    assert found.answer.rate_rps <= 1.1 * truth_rps
    assert found.answer.missed_rps >= 0.9 * truth_rps
    assert any(probe.cut for probe in found.probes if probe.verdict == "missed")
    assert all(probe.window_s < 1.5 for probe in found.probes if probe.cut)
    again = search(one_row, tmp_path / "out", queue, (silent := Listener()))
    assert again == found
    assert not silent.probes
    assert ResultsFolder(tmp_path / "out").read_derived(FILE, SearchRecord) == found
    assert (tmp_path / "out" / "search.html").read_text().count("<!doctype html>") == 1


def test_less_than_the_bare_service_is_not_reachable_and_the_best_is_told(
    one_row: Model, queue: str, tmp_path: Path
) -> None:
    """One probe tells: a service of 0.5 ms is not answered within 0.3 ms at any rate."""
    listener = Listener()
    found = search(one_row, tmp_path / "out", queue, listener, objectives=("p90<=0.3ms",))
    assert found.answer.kind == "not reachable"
    assert [probe.verdict for probe in listener.probes] == ["missed"]
    assert found.answer.best_seen is not None
    assert found.answer.sentence.startswith("Not reachable: ")


def test_what_cannot_be_measured_is_refused_before_any_load(
    one_row: Model, queue: str, tmp_path: Path
) -> None:
    asked = ("p90<=2ms", "memory<=400MB")
    with pytest.raises(UsageError, match="it runs on another host"):
        search(one_row, tmp_path / "out", queue, Listener(), objectives=asked)
    assert not (tmp_path / "out" / "trials.jsonl").exists()
