"""The page shows everything, honestly, and reaches for nothing."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from plotly.offline import get_plotlyjs

from loadtest.explained import Heatmap
from loadtest.folder import ResultsFolder
from loadtest.report import numbers, write_report
from loadtest.report.answer import answer_of
from loadtest.report.markdown import markdown
from loadtest.report.page import RAW, render
from loadtest.results import Contrast, Ranking, Summary
from loadtest.shapes import COLUMNS, ROWS
from loadtest.summary import write_summary
from serving.errors import ResultsError
from tests import sample_folders, sample_trials
from tests import sample_report as made
from tests.sample_report import with_points

LABELS = ("triton", "onnxruntime", "fastapi", "fastapi:torch")
REFERENCE = re.compile(
    r"""(?:src|href|action|poster|data)\s*=\s*["']?\s*(?:https?:)?//"""
    r"""|url\(\s*["']?\s*(?:https?:)?//|@import|\bimport\s*\(""",
    re.IGNORECASE,
)


@pytest.fixture(scope="module")
def page() -> str:
    return render(made.summary())


def own_text(page: str) -> str:
    """The page without Plotly's source, which names hosts that it never asks here."""
    assert page.count(get_plotlyjs()) == 1
    return page.replace(get_plotlyjs(), "")


def section_of(page: str, name: str) -> str:
    start = page.index(f'<section id="{name}"')
    return page[start : page.index("</section>", start)]


def test_nothing_is_fetched(page: str) -> None:
    own = own_text(page)
    assert not REFERENCE.search(own)
    assert "default-src 'none'" in own
    assert re.findall(r'<(?:link|script|img|iframe)[^>]*(?:src|href)="([^"]*)"', own) == ["data:,"]


def test_links_lead_to_places_on_the_page_or_to_files_beside_it(page: str) -> None:
    own = own_text(page)
    links = set(re.findall(r'<a[^>]*href="([^"]*)"', own))
    inside = {link for link in links if link.startswith("#")}
    assert inside
    assert all(f'id="{link[1:]}"' in own for link in inside)
    assert links - inside == set(RAW)
    assert not any(":" in name or name.startswith("/") for name in RAW)


def large() -> Summary:
    """Three backends at 40 levels, with as many cells in their heatmaps as there can be."""
    summary = made.summary()
    shown = [backend for backend in summary.backends if backend.points]
    heatmap = Heatmap(
        trial="r1",
        level=4,
        column_s=3.0,
        edges_ms=tuple(1.05**row for row in range(ROWS + 1)),
        counts=tuple(
            tuple(range(99_000 + place, 99_000 + ROWS + place)) for place in range(COLUMNS)
        ),
    )
    points = [
        tuple(b.points[0].model_copy(update={"level": float(level)}) for level in range(1, 41))
        for b in shown
    ]
    backends = tuple(
        backend.model_copy(update={"heatmap": heatmap, "points": own})
        for backend, own in zip(shown, points, strict=True)
    )
    return summary.model_copy(update={"backends": backends})


def test_the_page_of_a_large_run_is_small_enough_to_send() -> None:
    assert len(render(large()).encode()) < 6e6


def test_user_strings_are_escaped(page: str) -> None:
    assert made.HOSTILE not in page
    assert "&lt;script&gt;alert(&#39;facts&#39;)&lt;/script&gt;" in page


def test_a_hostile_label_ends_no_script_and_makes_no_link() -> None:
    label = '</script><a href="//x">'
    text = made.summary().model_dump_json().replace('"triton"', json.dumps(label))
    page = own_text(render(Summary.model_validate_json(text)))
    assert label not in page
    assert "&lt;/script&gt;" in page
    assert page.count("</script>") == own_text(render(made.summary())).count("</script>")


def test_the_answer_comes_first(page: str) -> None:
    sentence = made.summary().ranking.sentence
    assert page.index(f"<h1>{sentence}</h1>") < page.index("<table")
    assert "Winner: onnxruntime" in page


def test_every_point_has_its_verdict_and_reason(page: str) -> None:
    points = [point for backend in made.summary().backends for point in backend.points]
    table = section_of(page, "points")
    for verdict in ("VALID", "INVALID"):
        wanted = sum(point.verdict == verdict for point in points)
        assert table.count(f'<span class="badge {verdict}">') == wanted
    for point in points:
        for reason in (*point.reasons, *point.notes):
            assert reason in page


def test_a_missing_percentile_says_why(page: str) -> None:
    points = [point for backend in made.summary().backends for point in backend.points]
    missing = sum(
        numbers.percentile(point.response_time_ms, field) is None
        for point in points
        for field, _ in numbers.PERCENTILES
    )
    missing += sum(
        numbers.percentile(point.service_time_ms, field) is None
        for point in points
        for field in ("p50", "p99")
    )
    table = section_of(page, "points")
    assert table.count(">too few samples</td>") == missing


def test_what_a_reader_needs_to_repeat_it_is_there(page: str) -> None:
    manifest = made.summary().manifest
    assert manifest.command in page
    assert manifest.model_sha256 in page
    assert all(f"<dt>{name}</dt><dd>{v}</dd>" in page for name, v in manifest.versions.items())
    assert "<dt>Server on CPUs</dt><dd>0-2</dd>" in page
    assert "<strong>Excluded:</strong> its answers differ" in page
    assert "2.4e-07" in page
    assert "shared memory is small" in page


def test_what_it_used_is_told_and_what_could_not_be_measured_with_why(page: str) -> None:
    section = section_of(page, "resources")
    points = {b.label: b.points for b in made.summary().backends}
    for point in points["triton"]:
        assert point.resources is not None
        energy = point.resources.energy
        assert energy is not None
        assert f"{energy.joules_per_inference:.3g} J" in section
        assert f"{energy.net_joules_per_inference:.3g} J" in section
    assert "21,000 / 310" in section
    assert "412 MB" in section
    assert made.THROTTLED in section
    assert "no &lt;power&gt; sensor &amp; no counter" in section
    assert "fastapi" not in section
    assert "1,200 to 1,800 MHz" in section


def test_results_without_samples_have_no_section_on_resources() -> None:
    assert 'id="resources"' not in render(with_points(made.summary(), resources=None))


def test_an_incomplete_run_says_so() -> None:
    assert "This run is incomplete" not in render(made.summary())
    page = render(made.summary(complete=False))
    assert "This run is incomplete" in page
    assert "20 of 48 planned trials" in page


def test_shared_cpus_are_said() -> None:
    summary = made.summary()
    settings = summary.manifest.settings.model_copy(update={"client_cpus": (2, 3)})
    manifest = summary.manifest.model_copy(update={"settings": settings})
    page = render(summary.model_copy(update={"manifest": manifest}))
    assert "shared CPUs</strong> (2)" in page


def test_a_run_without_a_point_still_has_a_page() -> None:
    summary = made.summary()
    empty = tuple(b.model_copy(update={"points": ()}) for b in summary.backends)
    page = render(summary.model_copy(update={"backends": empty}))
    assert "There is no point to draw." in page
    assert page.count("Not measured") == 3


@pytest.mark.parametrize(
    ("value", "text"),
    [(None, "-"), (0.0421, "0.042"), (8.4567, "8.46"), (62.04, "62.0"), (1234.5, "1,234")],
)
def test_milliseconds(value: float | None, text: str) -> None:
    assert numbers.milliseconds(value) == text


def test_cpus_are_written_as_ranges() -> None:
    assert numbers.cpus((5, 0, 1, 2)) == "0-2, 5"
    assert numbers.cpus(()) == "-"


def test_the_report_is_written_beside_its_summary(tmp_path: Path) -> None:
    folder = ResultsFolder(tmp_path)
    folder.write_summary(made.summary())
    assert write_report(folder) == folder.report
    assert (tmp_path / "report.md").read_text(encoding="utf-8") == markdown(made.summary())
    assert folder.report.read_text(encoding="utf-8") == render(made.summary())
    found = sorted(path.name for path in tmp_path.iterdir())
    assert found == ["report.html", "report.md", "summary.json"]


def test_a_folder_without_a_summary_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ResultsError, match=r"summary\.json does not exist"):
        write_report(ResultsFolder(tmp_path))


def against(verdict: str) -> Contrast:
    return Contrast.model_validate({"ratio": 0.9, "low": 0.8, "high": 1.1, "verdict": verdict})


def with_contrasts(*verdicts: str) -> Summary:
    """No winner; each backend but the first has a verdict against it, or none."""
    summary = made.summary()
    first, *others = summary.ranking.rows
    rows = [
        row.model_copy(update={"against_first": against(verdict) if verdict else None})
        for row, verdict in zip(others, verdicts, strict=False)
    ]
    ranking = summary.ranking.model_copy(update={"winner": None, "rows": (first, *rows)})
    return summary.model_copy(update={"ranking": ranking})


@pytest.mark.parametrize(
    ("verdicts", "label"),
    [
        (("no significant difference", "slower"), "No significant difference"),
        (("too few repeats", "too few repeats"), "Too few repeats"),
        (("", ""), "Undecided"),
        ((), "Nothing to compare with"),
    ],
)
def test_no_winner_is_told_with_its_reason(verdicts: tuple[str, ...], label: str) -> None:
    assert answer_of(with_contrasts(*verdicts)).label == label


def test_repeats_that_overlap_are_no_victory() -> None:
    summary = made.summary(winner=False)
    assert answer_of(summary).label == "No significant difference"
    assert "Winner:" not in render(summary)


def test_without_any_rank_there_is_no_answer() -> None:
    summary = made.summary()
    ranking = Ranking(winner=None, sentence="none", rows=(), unranked={})
    assert answer_of(summary.model_copy(update={"ranking": ranking})).label == "No answer"


def test_each_rank_has_its_ratio_with_the_interval_and_every_repeat(page: str) -> None:
    ranking = made.summary().ranking
    table = section_of(page, "ranking")
    for row in ranking.rows[1:]:
        found = row.against_first
        assert found is not None
        assert found.low is not None
        assert found.high is not None
        assert f"{found.ratio:.2f} ({found.low:.2f} to {found.high:.2f})" in table
        assert " · ".join(f"{value:,.1f}" for value in row.repeats) in table
    assert table.count("<small>slower</small>") == len(ranking.rows) - 1


def test_memory_and_start_stand_beside_speed(page: str) -> None:
    section = section_of(page, "footprint")
    first = section[section.index("<tbody>") : section.index("</tr>", section.index("<tbody>"))]
    cells = re.findall(r"<td[^>]*>(.*?)</td>", first)
    # Ready after 2, 4, 1 and 2 s, each first answer a quarter of a second later.
    assert cells == [
        *("191.1", "412 MB", "301 MB", "4.2 s"),
        *("2.25 s", "4.25 s", "1.75 s (2 starts)"),
    ]
    assert "since &lt;b&gt;sshd&lt;/b&gt; has them mapped" in section


def test_what_does_not_count_is_listed_once_with_its_reason(page: str) -> None:
    section = section_of(page, "verdicts")
    assert section.count("<tr>") == 1 + 3
    for told in ("triton at 8 users", "fastapi at 8 users", "fastapi:torch"):
        assert section.count(f">{told}</th>") == 1
    assert "row 3 by 0.21 &amp; more" in section


def test_a_run_where_all_counts_says_so() -> None:
    summary = made.summary()
    known = tuple(backend for backend in summary.backends if not backend.excluded)
    whole = with_points(summary.model_copy(update={"backends": known}), verdict="VALID", reasons=())
    ranking = whole.ranking.model_copy(update={"unranked": {}})
    assert "Nothing was left out" in render(whole.model_copy(update={"ranking": ranking}))


def test_the_served_configuration_is_kept_but_not_for_a_server_that_was_not_started(
    tmp_path: Path,
) -> None:
    remote = "remote:http://127.0.0.1:1"
    folder = sample_folders.finished(tmp_path, (10.0,), backends=("triton", remote))
    assert [b.configuration for b in write_summary(folder).backends] == [None, None]
    served = tmp_path / "model_repository" / "tiny" / "config.pbtxt"
    served.parent.mkdir(parents=True)
    served.write_text("name: 'tiny'")
    folder.write_backend(sample_trials.record(remote, start_s=None))
    assert [b.configuration for b in write_summary(folder).backends] == ["name: 'tiny'", None]


def test_the_configuration_can_be_copied_and_is_told_once_for_all_that_served_it(page: str) -> None:
    assert "<h3>config.pbtxt of triton, onnxruntime, fastapi</h3>" in page
    assert page.count("name: &#34;image_classifier&#34;") == 1
    assert 'data-copies="config-1"' in page
    assert "# &lt;/code&gt;&lt;script&gt;" in page


def test_numbers_of_the_figures_over_time_and_quantile_are_in_tables(page: str) -> None:
    section = section_of(page, "figures")
    assert section.count('<td class="number">≥ 20.0</td>') == 3
    assert section.count('<td class="number">5.00 to 10.0</td>') == 3 * 3
    assert section.count('<td class="number">10.0 to 40.0</td>') == 3


def test_a_share_that_failed_is_never_rounded_to_none() -> None:
    told = [numbers.failed(share) for share in (None, 0.0, 0.00004, 0.013)]
    assert told == ["-", "0", "0.004%", "1.3%"]
