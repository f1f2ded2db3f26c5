"""The page and the terminal table show everything, honestly, and reach for nothing."""

from __future__ import annotations

import json
import re
from io import StringIO
from pathlib import Path

import pytest
from plotly.offline import get_plotlyjs
from rich.console import Console

from loadtest.folder import ResultsFolder
from loadtest.report import figures, numbers, write_report
from loadtest.report.page import answer_of, render
from loadtest.report.terminal import summary_table
from loadtest.results import Point, Summary
from serving.errors import ResultsError
from tests import sample_report as made

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


def shown_names(figure: object) -> list[str]:
    return [trace["name"] for trace in json.loads(figure.to_json())["data"]]  # type: ignore[attr-defined]


def with_points(summary: Summary, **changes: object) -> Summary:
    """Every point of every backend, changed."""
    return summary.model_copy(
        update={
            "backends": tuple(
                backend.model_copy(
                    update={"points": tuple(p.model_copy(update=changes) for p in backend.points)}
                )
                for backend in summary.backends
            )
        }
    )


def test_nothing_is_fetched(page: str) -> None:
    own = own_text(page)
    assert not REFERENCE.search(own)
    assert "default-src 'none'" in own
    assert re.findall(r'<(?:link|script|img|iframe)[^>]*(?:src|href)="([^"]*)"', own) == ["data:,"]


def test_the_page_is_small_enough_to_send(page: str) -> None:
    assert len(page.encode()) < 6e6


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
    for verdict in ("VALID", "INVALID"):
        wanted = sum(point.verdict == verdict for point in points)
        assert page.count(f'<span class="badge {verdict}">') == wanted
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
    table = page[page.index('<table class="points">') :]
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
    section = page[page.index('<section id="resources"') : page.index('<section id="backends"')]
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


def test_a_tie_is_no_victory() -> None:
    summary = made.summary(winner=False)
    assert answer_of(summary.ranking).label == "Tie"
    assert "Winner:" not in render(summary)


def test_no_winner_for_other_reasons_is_not_called_a_tie() -> None:
    ranking = made.summary().ranking.model_copy(update={"winner": None})
    assert answer_of(ranking).label == "Undecided"
    one = ranking.model_copy(update={"rows": ranking.rows[:1]})
    assert answer_of(one).label == "Nothing to compare with"
    assert answer_of(ranking.model_copy(update={"rows": ()})).label == "No answer"


def test_a_run_without_a_point_still_has_a_page() -> None:
    summary = made.summary()
    empty = tuple(b.model_copy(update={"points": ()}) for b in summary.backends)
    page = render(summary.model_copy(update={"backends": empty}))
    assert "There is no point to draw." in page
    assert page.count("Not measured") == 3


def test_one_colour_and_symbol_per_backend() -> None:
    summary = made.summary()
    styles = figures.styles(summary)
    assert tuple(styles) == LABELS
    assert len({style.colour for style in styles.values()}) == len(LABELS)
    for make in (
        figures.throughput_against_latency,
        figures.latency_percentiles,
        figures.throughput_against_level,
    ):
        for trace in make(summary).data:
            assert trace.marker.color == trace.line.color == styles[trace.name].colour


def test_the_percentile_shown_is_one_that_all_valid_points_have() -> None:
    summary = made.summary()
    assert figures.common_percentile(summary) == "p95"
    title = figures.throughput_against_latency(summary).layout.yaxis.title.text
    assert title.startswith("p95 response time")
    all_known = with_points(summary, response_time_ms=_of(summary, "onnxruntime").response_time_ms)
    assert figures.common_percentile(all_known) == "p99"
    unknown = with_points(summary, response_time_ms=_of(summary, "triton").response_time_ms)
    assert figures.common_percentile(unknown) == "p50"


def _of(summary: Summary, label: str) -> Point:
    return next(b for b in summary.backends if b.label == label).points[-1]


def test_invalid_points_are_hollow_and_marked() -> None:
    (fastapi,) = [
        trace
        for trace in figures.throughput_against_latency(made.summary()).data
        if trace.name == "fastapi"
    ]
    assert list(fastapi.marker.symbol) == ["diamond"] * 3 + ["diamond-open"]
    assert [text.strip() for text in fastapi.text] == ["1", "2", "4", "8 ✕"]


def test_bars_reach_from_the_lowest_to_the_highest_repeat() -> None:
    summary = made.summary()
    figure = figures.throughput_against_level(summary)
    (trace,) = [t for t in figure.data if t.name == "onnxruntime"]
    low, high = summary.backends[1].points[0].inferences_per_s_range or (0, 0)
    assert trace.y[0] + trace.error_y.array[0] == pytest.approx(high)
    assert trace.y[0] - trace.error_y.arrayminus[0] == pytest.approx(low)


def test_a_point_that_no_figure_can_show_is_named(page: str) -> None:
    names = shown_names(figures.throughput_against_level(made.summary()))
    assert names == ["triton", "onnxruntime", "fastapi"]


def test_the_terminal_shows_every_verdict_and_reason() -> None:
    out = StringIO()
    Console(file=out, width=160).print(summary_table(made.summary()))
    text = out.getvalue()
    assert len(re.findall(r"\bVALID\b", text)) == 10
    assert "triton at 8 users is INVALID: 9 wrong answers" in text
    assert "fastapi:torch was left out: its answers differ" in text
    assert text.count("too few") == 4
    assert text.index("onnxruntime") < text.index("triton")


def test_the_terminal_takes_brackets_for_text() -> None:
    text = made.summary().model_dump_json().replace('"fastapi"', '"[red]x[/]"')
    out = StringIO()
    Console(file=out, width=160).print(summary_table(Summary.model_validate_json(text)))
    assert "[red]x[/]" in out.getvalue()


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
    assert folder.report.read_text(encoding="utf-8") == render(made.summary())
    assert sorted(path.name for path in tmp_path.iterdir()) == ["report.html", "summary.json"]


def test_a_folder_without_a_summary_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ResultsError, match=r"summary\.json does not exist"):
        write_report(ResultsFolder(tmp_path))
