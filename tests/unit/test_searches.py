"""Searches of several backends and repeats: what is derived, ranked, gated and listed from them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from loadtest.folder import ResultsFolder
from loadtest.gate.decision import Decision, Rule, decide
from loadtest.gate.side import read_side
from loadtest.highest import HIGHEST
from loadtest.history.runs import read_history
from loadtest.measures import MEASURES
from loadtest.results import Histograms, Settings, Summary, Trial
from loadtest.slo.search import FIRST_STEP
from loadtest.slo.state import CLOSED, State, evidence_of, state_of
from loadtest.summary import is_searched, summarise, write_summary
from serving.errors import ResultsError
from tests import sample_trials as made

MS = made.MS
GIVEN: dict[str, object] = {
    "backends": ("triton", "fastapi"),
    "scenario": "server",
    "level_name": "requests/s",
    "levels": (),
    "repeats": 3,
    "duration_s": 5.0,
    "limit_s": 60.0,
    "objectives": ("p90<=50ms",),
}
Kept = tuple[Trial, Histograms]
FAST_MS, SLOW_MS = 20.0, 90.0


def renamed(kept: Kept, name: str, **changes: object) -> Kept:
    trial, histograms = kept
    return (
        trial.model_copy(update={"id": name, **changes}),
        histograms.model_copy(update={"trial": name}),
    )


def closed(backend: str, users: int) -> Kept:
    count = 2000 * users // 5 // max(users, 1)
    kept = made.trial(backend, users, 1, [5 * MS] * count, scenario=CLOSED, ceiling_rps=20_000.0)
    return renamed(kept, f"{backend}-closed-{users}", probe=0)


def probe(backend: str, repeat: int, number: int, rate_rps: float, latency_ms: float) -> Kept:
    kept = made.trial(backend, rate_rps, repeat, [round(latency_ms * MS)] * 400, scenario="server")
    return renamed(kept, f"{backend}-r{repeat}-p{number}", probe=number)


def searched(backend: str, repeat: int, most_rps: float) -> Iterator[Kept]:
    """A whole search whose answer is ``most_rps``: met there, missed twice 4% above."""
    yield probe(backend, repeat, 1, most_rps, FAST_MS)
    yield probe(backend, repeat, 2, 1.04 * most_rps, SLOW_MS)
    yield probe(backend, repeat, 3, 1.04 * most_rps, SLOW_MS)


def run_of(rates_rps: dict[str, Sequence[float]]) -> list[Kept]:
    """Closed loops first, then one search per backend and repeat."""
    kept = [closed(backend, users) for backend in rates_rps for users in (1, 16)]
    for backend, rates in rates_rps.items():
        for repeat, rate_rps in enumerate(rates, 1):
            kept += searched(backend, repeat, rate_rps)
    return kept


def derived(kept: Sequence[Kept], **changes: object) -> Summary:
    manifest = made.manifest(**{**GIVEN, **changes})
    read = {h.trial: h for _, h in kept}.__getitem__
    records = {label: made.record(label) for label in manifest.settings.backends}
    return summarise(manifest, records, [trial for trial, _ in kept], read)


def state(kept: Sequence[Kept], backend: str, repeat: int) -> State:
    settings = Settings.model_validate(made.settings(**GIVEN))
    return state_of(settings, [evidence_of(*one) for one in kept], backend, repeat)


FASTER = {"triton": [100.0, 102.0, 101.0], "fastapi": [80.0, 81.0, 79.0]}


def test_each_search_has_an_answer_and_the_faster_backend_wins() -> None:
    found = derived(run_of(FASTER))
    assert [(one.backend, one.repeat, one.answer.kind) for one in found.searches] == [
        (backend, repeat, "found") for repeat in (1, 2, 3) for backend in ("triton", "fastapi")
    ]
    assert found.complete
    assert found.ranking.winner == "triton"
    first, second = found.ranking.rows
    assert first.repeats == tuple(FASTER["triton"])
    assert second.against_first is not None
    assert second.against_first.ratio == pytest.approx(0.792, abs=0.001)
    assert "within p90<=50ms" in found.ranking.sentence


def test_closed_loops_are_no_points_and_probes_are() -> None:
    points = {b.label: b.points for b in derived(run_of(FASTER)).backends}
    assert [p.level for p in points["fastapi"]] == sorted(
        rate for most in FASTER["fastapi"] for rate in (most, 1.04 * most)
    )


def test_a_repeat_begins_at_a_place_of_its_own_near_the_former_answer() -> None:
    """Were all on the same steps, rounding would look like agreement."""
    kept = run_of({"triton": [100.0], "fastapi": [80.0]})
    places = {state(kept, "triton", repeat).search.next_rps for repeat in (2, 3, 4, 5)}
    assert len(places) == 4
    assert all(100 / FIRST_STEP**0.51 < place < 100 * FIRST_STEP**0.51 for place in places if place)
    first = state(kept, "fastapi", 2).search.next_rps
    assert first is not None
    assert first < 80 * FIRST_STEP**0.51


def test_a_repeat_s_probes_are_its_own() -> None:
    kept = run_of({"triton": [100.0, 90.0]})
    levels = [one.seen.trial.level for one in state(kept, "triton", 2).probes]
    assert levels == pytest.approx([90.0, 93.6, 93.6])
    assert state(kept, "triton", 2).search.answer.met_rps == 90.0


def test_what_is_not_reachable_is_asked_for_once() -> None:
    """Ten requests in two seconds, each above the objective: no lower rate can be measured."""
    slow = made.trial("triton", 1, 1, [200 * MS] * 100, scenario=CLOSED)
    many = made.trial("triton", 16, 1, [900 * MS] * 100, scenario=CLOSED)
    loops = [renamed(slow, "c1", probe=0), renamed(many, "c16", probe=0)]
    kept = [*loops, probe("triton", 1, 1, 5.0, 200.0)]
    found = derived(kept, backends=("triton",))
    assert found.searches[0].answer.kind == "not reachable"
    assert is_searched(found.searches, repeats=3)
    assert found.complete
    assert found.ranking.rows == ()
    assert found.ranking.sentence == found.searches[0].answer.sentence


def test_an_interrupted_run_is_incomplete_and_says_what_it_has() -> None:
    kept = run_of({"triton": [100.0, 102.0], "fastapi": [80.0, 81.0, 79.0]})
    found = derived(kept[:-1])
    assert not found.complete
    assert found.ranking.winner is None


def written(path: Path, rates_rps: dict[str, Sequence[float]]) -> ResultsFolder:
    folder = ResultsFolder(path)
    folder.write_manifest(made.manifest(**GIVEN))
    for label in rates_rps:
        folder.write_backend(made.record(label))
    for kept in run_of(rates_rps):
        folder.append_trial(*kept)
    write_summary(folder)
    return folder


def gated(before: ResultsFolder, after: ResultsFolder) -> Decision:
    sides = [read_side(folder, folder.path.name) for folder in (before, after)]
    return decide(sides[0], sides[1], [MEASURES["throughput"]], Rule(0.05))


def test_the_gate_compares_highest_rates(tmp_path: Path) -> None:
    before = written(tmp_path / "a", FASTER)
    slower = {"triton": [r * 0.85 for r in FASTER["triton"]], "fastapi": FASTER["fastapi"]}
    decision = gated(before, written(tmp_path / "b", slower))
    assert {row.backend: row.verdict for row in decision.rows} == {
        "triton": "regression",
        "fastapi": "pass",
    }
    assert decision.rows[0].level == HIGHEST
    assert decision.rows[0].change is not None
    assert decision.rows[0].change.ratio == pytest.approx(0.85)


def test_the_gate_wants_whole_searches(tmp_path: Path) -> None:
    before = written(tmp_path / "a", FASTER)
    after = written(tmp_path / "b", {**FASTER, "fastapi": FASTER["fastapi"][:2]})
    with pytest.raises(ResultsError, match="searches of fastapi are missing"):
        gated(before, after)


def test_the_history_lists_highest_rates(tmp_path: Path) -> None:
    written(tmp_path / "a", FASTER)
    (group,) = read_history([tmp_path], MEASURES["throughput"]).groups
    (run,) = group.runs
    assert run.complete
    assert {one.backend: one.value for one in run.found} == {"triton": 101.0, "fastapi": 80.0}
