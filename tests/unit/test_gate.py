"""The gate fails what is worse, lets noise pass, and says so when it cannot tell."""

from __future__ import annotations

import sys
import xml.etree.ElementTree as ET
from pathlib import Path

import numpy as np
import pytest
from markdown_it import MarkdownIt

from loadtest.cli import main
from loadtest.folder import ResultsFolder
from loadtest.gate.decision import STATUSES, Decision, Rule, decide, judged
from loadtest.gate.side import read_side
from loadtest.gate.written import junit, markdown
from loadtest.measures import MEASURES
from loadtest.significance import compare
from serving import errors
from serving.models.variants.record import VariantRecord
from tests import sample_trials as made
from tests.sample_folders import energy, finished

STEADY = (1000, 1005, 995)
THROUGHPUT = MEASURES["throughput"]
MS = made.MS


def scaled(factor: float) -> list[float]:
    return [factor * rate for rate in STEADY]


def gate(
    before: ResultsFolder,
    after: ResultsFolder,
    *metrics: str,
    limit: float = 0.05,
    allow_unlike: bool = False,
) -> Decision:
    sides = (read_side(folder, folder.path.name) for folder in (before, after))
    measures = [MEASURES[name] for name in metrics or ("throughput",)]
    return decide(*sides, measures, Rule(limit), allow_unlike=allow_unlike)


def command(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, *more: str) -> int:
    arguments = ["--baseline", str(tmp_path / "a"), "--candidate", str(tmp_path / "b"), *more]
    monkeypatch.setattr(sys, "argv", ["infersweep", "gate", *arguments])
    with pytest.raises(SystemExit) as left:
        main()
    return int(left.value.code or 0)


@pytest.mark.parametrize(
    ("rates", "verdict", "why"),
    [
        (STEADY, "pass", "none of the interval is worse by more than 5%"),
        (scaled(1.5), "pass", "none of the interval is worse"),
        (scaled(0.8), "regression", "all of the interval is worse by more than 5%"),
        (scaled(0.98), "pass", "none of the interval is worse"),
        (scaled(0.955), "pass", "not shown to be worse by more than 5%"),
        ((1000, 800, 1200), "inconclusive", "too wide for a limit of 5%"),
        ((100, 100), "inconclusive", "3 against 2 VALID repeats: it takes 3 of each"),
    ],
)
def test_verdicts(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    rates: tuple[float, ...],
    verdict: str,
    why: str,
) -> None:
    decision = gate(finished(tmp_path / "a", STEADY), finished(tmp_path / "b", rates))
    (row,) = decision.rows
    assert (row.verdict, decision.verdict) == (verdict, verdict)
    assert why in row.why
    assert command(monkeypatch, tmp_path) == STATUSES[decision.verdict]
    assert f"{verdict}: 1 compared" in capsys.readouterr().out


def test_no_status_is_that_of_an_error() -> None:
    kinds = [kind for kind in vars(errors).values() if hasattr(kind, "exit_code")]
    taken = {kind.exit_code for kind in kinds} | {errors.INTERRUPTED_EXIT_CODE}
    assert len(taken) > 5
    assert not taken & set(STATUSES.values())
    assert len(set(STATUSES.values())) == len(STATUSES)


@pytest.mark.parametrize("noise", [0.02, 0.05])
@pytest.mark.parametrize("repeats", [3, 5])
def test_noise_seldom_fails_and_thrice_the_limit_never_passes_unseen(
    noise: float, repeats: int
) -> None:
    rng = np.random.default_rng(7)
    values = 1 + noise * rng.standard_normal((1000, 2, repeats))

    def share(factor: float, verdict: str) -> float:
        found = [
            judged(compare(before, [factor * value for value in after]), THROUGHPUT, 0.05)[0]
            for before, after in values.tolist()
        ]
        return found.count(verdict) / len(found)

    assert share(1.0, "regression") < 0.01
    assert share(0.85, "pass") < 0.01


def test_for_times_and_memory_more_is_worse(tmp_path: Path) -> None:
    def steps(middle_ns: float) -> list[list[int]]:
        return [[round(middle_ns * f)] * 500 for f in (1.0, 1.004, 0.996)]

    before = finished(tmp_path / "a", STEADY, latencies_ns=steps(10 * MS))
    slower = finished(tmp_path / "b", STEADY, latencies_ns=steps(12 * MS))
    heavier = finished(tmp_path / "c", STEADY, trial={"server_rss_bytes": 12 * 10**7})
    times = gate(before, slower, "p50", "p99", "memory")
    assert [row.verdict for row in times.rows] == ["regression", "regression", "pass"]
    assert times.rows[0].before == pytest.approx(10, rel=2e-3)
    assert times.rows[0].after == pytest.approx(12, rel=2e-3)
    back = gate(slower, before, "p50", "p99")
    assert [row.verdict for row in back.rows] == ["pass", "pass"]
    assert gate(before, heavier, "memory").verdict == "regression"
    assert gate(heavier, before, "memory").verdict == "pass"


def test_the_gravest_verdict_is_the_verdict(tmp_path: Path) -> None:
    before = finished(tmp_path / "a", STEADY, trial={"server_rss_bytes": None})
    after = finished(tmp_path / "b", scaled(0.5), trial={"server_rss_bytes": None})
    decision = gate(before, after, "memory", "throughput")
    assert [row.verdict for row in decision.rows] == ["inconclusive", "regression"]
    assert decision.verdict == "regression"


def test_an_invalid_point_is_neither_better_nor_worse(tmp_path: Path) -> None:
    bad = {"verdict": "INVALID", "reasons": ("client-bound: its CPU",)}
    before = finished(tmp_path / "a", STEADY)
    decision = gate(before, finished(tmp_path / "b", scaled(0.5), trial=bad))
    assert decision.verdict == "invalid"
    assert decision.rows[0].why == (
        "the candidate is INVALID: client-bound: its CPU (3 of 3 repeats)"
    )


def test_a_backend_that_was_left_out_is_told(tmp_path: Path) -> None:
    before = finished(tmp_path / "a", STEADY, backends=("triton", "fastapi"))
    after = finished(tmp_path / "b", STEADY, backends=("triton", "fastapi"))
    (after.path / "trials.jsonl").write_text(
        "".join(t.model_dump_json() + "\n" for t in after.read_trials() if t.backend == "triton")
    )
    after.write_backend(made.record("fastapi", excluded="its answers differ"))
    decision = gate(before, after)
    assert [row.verdict for row in decision.rows] == ["pass", "invalid"]
    assert decision.rows[1].why == "the candidate was left out: its answers differ"


def test_too_few_samples_for_a_percentile_are_inconclusive(tmp_path: Path) -> None:
    before, after = (finished(tmp_path / name, STEADY) for name in "ab")
    (row,) = gate(before, after, "p99").rows
    assert row.verdict == "inconclusive"
    assert "fewer than the 459 samples that p99 takes" in row.why


def test_a_percentile_that_is_only_a_lower_bound_is_inconclusive(tmp_path: Path) -> None:
    """More were not sent than were answered: nobody knows how long the median would have waited."""
    counts = {"outcomes": made.outcomes(ok=20, not_sent=30)}
    before, after = (
        finished(tmp_path / name, STEADY, latencies_ns=[[MS] * 20] * 3, trial=counts)
        for name in "ab"
    )
    (row,) = gate(before, after, "p50").rows
    assert row.verdict == "inconclusive"
    assert "only its lower bound is known" in row.why


def test_energy_of_other_rails_is_no_match(tmp_path: Path) -> None:
    one, more, other = (
        finished(tmp_path / name, STEADY, trial={"resources": energy(joules, rail)})
        for name, joules, rail in (("a", 1.0, "psys"), ("b", 1.2, "psys"), ("c", 1.0, "nvml:gpu0"))
    )
    assert gate(one, more, "joules").verdict == "regression"
    (row,) = gate(one, other, "joules").rows
    assert (row.verdict, row.why) == ("invalid", "joules of unlike things: psys against nvml:gpu0")


def test_what_cannot_be_measured_is_not_zero(tmp_path: Path) -> None:
    before, after = (finished(tmp_path / name, STEADY) for name in "ab")
    (row,) = gate(before, after, "joules").rows
    assert (row.verdict, row.before, row.change) == ("inconclusive", None, None)


VARIANT = VariantRecord(
    of="tiny",
    kind="fp16",
    made="halved",
    sha256="0" * 64,
    size_bytes=1,
    parent_size_bytes=2,
    inputs=1,
    inputs_source="samples",
    largest_difference=0.0,
    mean_difference=0.0,
    cosine=1.0,
    measured_with="ONNX Runtime",
)


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"machine": {"hostname": "other"}}, "host: host against other"),
        ({"machine": {"gpus": ("A GPU",)}}, "GPUs: none against A GPU"),
        ({"encoding": "json"}, "encoding: binary against json"),
        ({"batch_size": 8}, "batch_size: 1 against 8"),
        ({"scenario": "constant"}, "scenario: closed against constant"),
        ({"server_cpus": (0, 1)}, "server_cpus: 0 against 0, 1"),
        ({"manifest": {"variant": VARIANT}}, "precision: the model's own against fp16"),
    ],
)
def test_unlike_runs_are_compared_only_when_asked_and_marked(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    changes: dict[str, object],
    told: str,
) -> None:
    finished(tmp_path / "a", STEADY)
    finished(tmp_path / "b", STEADY, **changes)
    assert command(monkeypatch, tmp_path) == errors.ResultsError.exit_code
    said = capsys.readouterr().err
    assert told in said
    assert "--allow-unlike" in said
    assert said.count("\n") == 1
    page = tmp_path / "page.md"
    assert command(monkeypatch, tmp_path, "--allow-unlike", "--markdown", str(page)) == 0
    assert f"Unlike: {told}" in capsys.readouterr().out
    assert told in text_of(page.read_text())


def test_another_provider_is_unlike(tmp_path: Path) -> None:
    before, after = (finished(tmp_path / name, STEADY) for name in "ab")
    for folder, provider in ((before, "CPU"), (after, "CUDA")):
        folder.write_backend(made.record("triton", facts={"provider": provider}))
    with pytest.raises(errors.ResultsError, match="triton, provider: CPU against CUDA"):
        gate(before, after)


def test_another_model_is_what_is_tested_and_noted(tmp_path: Path) -> None:
    before = finished(tmp_path / "a", STEADY)
    after = finished(
        tmp_path / "b",
        STEADY,
        model="smaller",
        seed=2,
        manifest={"model_sha256": "1" * 64, "commit": "abc"},
    )
    decision = gate(before, after)
    assert decision.verdict == "pass"
    assert not decision.unlike
    assert decision.notes == (
        "model: tiny, version 1 against smaller, version 1",
        "checksum: 000000000000 against 111111111111",
        "commit: unknown against abc",
        "seed: 1 against 2",
    )


def test_points_of_one_side_are_told(tmp_path: Path) -> None:
    before = finished(tmp_path / "a", STEADY, backends=("triton", "fastapi"), levels=(1, 4))
    after = finished(tmp_path / "b", STEADY, backends=("triton",), levels=(4, 8))
    decision = gate(before, after)
    assert [(row.backend, row.level) for row in decision.rows] == [("triton", 4)]
    assert decision.notes == (
        "only in the baseline: fastapi",
        "only in the baseline: 1 users",
        "only in the candidate: 8 users",
    )
    nothing = finished(tmp_path / "c", STEADY, backends=("onnxruntime",))
    with pytest.raises(errors.ResultsError, match="no backend and level in common"):
        gate(before, nothing)


def test_an_open_loop_s_throughput_is_its_schedule(tmp_path: Path) -> None:
    before, after = (finished(tmp_path / name, STEADY, scenario="constant") for name in "ab")
    assert "constant: its schedule sets the throughput; gate p99 too" in gate(before, after).notes


def test_a_folder_that_is_no_finished_run_is_told_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    finished(tmp_path / "a", STEADY)

    def said() -> str:
        assert command(monkeypatch, tmp_path) == errors.ResultsError.exit_code
        line = capsys.readouterr().err
        assert line.count("\n") == 1
        return line

    assert "does not exist" in said()
    folder = finished(tmp_path / "b", STEADY, manifest={"schema_version": 99})
    assert "schema version 99" in said()
    folder.write_manifest(made.manifest(backends=("triton",), levels=(4,), repeats=3))
    trials = folder.path / "trials.jsonl"
    lines = trials.read_text().splitlines(keepends=True)
    trials.write_text("".join(lines[:2]) + lines[2][:40])
    assert "2 of 3 trials, and its last line is half-written" in (line := said())
    assert f"infersweep compare --model tiny --out {folder.path}" in line
    trials.write_text("".join(lines) + lines[0][:40])
    assert "3 of 3 trials, and its last line is half-written" in said()
    trials.write_text("".join(lines).replace('"repeat":2', '"repeat":"second"'))
    assert "line 2 is damaged" in said()


def test_damaged_histograms_are_told(tmp_path: Path) -> None:
    many = [[MS] * 20] * 3
    before, after = (finished(tmp_path / n, STEADY, latencies_ns=many) for n in "ab")
    assert gate(before, after, "p50").verdict == "pass"
    kept = next((after.path / "histograms").iterdir())
    kept.write_text(kept.read_text().replace("HISTF", "JUNKF"))
    with pytest.raises(errors.ResultsError, match=r"the histograms of trial .* are damaged"):
        gate(before, after, "p50")


@pytest.mark.parametrize(
    ("arguments", "status", "told"),
    [
        (("--metric", "speed"), 2, "there is no metric 'speed'"),
        (("--max-regression", "much"), 2, "--max-regression is 'much'"),
        (("--confidence", "0"), 2, "--confidence is '0'"),
        (("--candidate", "a"), 2, "its own baseline"),
        (("--junit", "none/gate.xml"), 3, "was not written"),
    ],
)
def test_mistakes(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: tuple[str, ...],
    status: int,
    told: str,
) -> None:
    for name in "ab":
        finished(tmp_path / name, STEADY)
    monkeypatch.chdir(tmp_path)
    assert command(monkeypatch, tmp_path, *arguments) == status
    said = capsys.readouterr().err
    assert told in said
    assert said.count("\n") == 1


HOSTILE = 'a|b & <script>`*"@all" [x](y)\x07\n</testcase>'


def hostile_decision(tmp_path: Path) -> Decision:
    """One row of each verdict that a writer must tell."""
    labels = (HOSTILE, "worse", "wide", "fine")
    before = finished(tmp_path / "a", STEADY, backends=labels)
    after = finished(tmp_path / "b", STEADY, backends=labels)
    rates = {"worse": 0.5, "wide": 1.0, "fine": 1.0}

    def changed(line: str) -> str:
        trial = next(t for t in after.read_trials() if t.model_dump_json() == line)
        if trial.backend == HOSTILE:
            bad = {"verdict": "INVALID", "reasons": (HOSTILE,)}
            return trial.model_copy(update=bad).model_dump_json()
        factor = rates[trial.backend] * (trial.repeat if trial.backend == "wide" else 1)
        ok = made.outcomes(ok=round(trial.outcomes["ok"] * factor))
        return trial.model_copy(update={"outcomes": ok}).model_dump_json()

    lines = (after.path / "trials.jsonl").read_text().splitlines()
    (after.path / "trials.jsonl").write_text("".join(changed(line) + "\n" for line in lines))
    return gate(before, after)


def test_junit_is_what_its_readers_know(tmp_path: Path) -> None:
    decision = hostile_decision(tmp_path)
    root = ET.fromstring(junit(decision))
    (suite,) = root
    assert (root.tag, suite.tag) == ("testsuites", "testsuite")
    cases = suite.findall("testcase")
    assert len(cases) == len(decision.rows) == int(suite.attrib["tests"])
    for name, element in (("failures", "failure"), ("errors", "error"), ("skipped", "skipped")):
        assert int(suite.attrib[name]) == len(suite.findall(f"testcase/{element}")) == 1
    kinds = [[part.tag for part in case if part.tag != "system-out"] for case in cases]
    assert kinds == [["error"], ["failure"], ["skipped"], []]
    shown = HOSTILE.replace("\x07", "\ufffd")
    assert cases[0].attrib["classname"].replace("\n", " ") == f"infersweep.{shown}".replace(
        "\n", " "
    )
    assert "all of the interval is worse by more than 5%" in cases[1][0].attrib["message"]
    assert "-50.0%" in (cases[1][0].text or "")
    assert [case.attrib["time"] for case in cases[1:]] == [f"{6 * 2.0:.3f}"] * 3


def text_of(page: str) -> str:
    """What a reader of the rendered page sees."""
    tokens = MarkdownIt("commonmark").enable("table").parse(page)
    inline = [token for token in tokens if token.type == "inline"]
    return "\n".join("".join(child.content for child in token.children or ()) for token in inline)


def test_markdown_shows_the_words_and_nothing_else(tmp_path: Path) -> None:
    decision = hostile_decision(tmp_path)
    page = markdown(decision)
    tokens = MarkdownIt("commonmark").enable("table").parse(page)
    assert sum(token.type == "tr_open" for token in tokens) == 1 + len(decision.rows)
    assert sum(token.type == "td_open" for token in tokens) == 9 * len(decision.rows)
    kinds = {child.type for token in tokens for child in token.children or ()}
    assert kinds <= {"text", "text_special"}
    assert " ".join(HOSTILE.split()) in text_of(page)
    assert "@all" not in page
    assert "❌ regression" in page.splitlines()[0]
