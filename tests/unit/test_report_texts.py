"""The short forms: Markdown that stays what it is in a pull request, and the terminal's table."""

from __future__ import annotations

import json
import re
from io import StringIO

import pytest
from markdown_it import MarkdownIt
from rich.console import Console

from loadtest.report.markdown import escape, fenced, markdown
from loadtest.report.terminal import summary_table
from loadtest.results import Summary
from tests import sample_report as made
from tests.sample_report import with_points

NASTY = "a|b`c`*d*_e_[f](http://g)<img src=x>@octocat #1 ~~h~~ $i$ &amp; \\j\n# k"


def shown(text: str) -> str:
    """As GitHub reads it: with tables and with HTML that passes through."""
    return MarkdownIt("gfm-like", {"linkify": False}).render(text)


def told(summary: Summary, width: int = 160) -> str:
    out = StringIO()
    Console(file=out, width=width).print(summary_table(summary))
    return out.getvalue()


def renamed(label: str) -> Summary:
    text = made.summary().model_dump_json().replace('"fastapi"', json.dumps(label))
    return Summary.model_validate_json(text)


def test_the_answer_comes_first_and_each_rank_has_its_ratio_with_the_interval() -> None:
    summary = made.summary()
    page = shown(markdown(summary))
    assert page.index("Winner: onnxruntime") < page.index(summary.ranking.sentence)
    assert page.index(summary.ranking.sentence) < page.index("<table>")
    for row in summary.ranking.rows[1:]:
        found = row.against_first
        assert found is not None
        assert f">{found.ratio:.2f} ({found.low:.2f} to {found.high:.2f})</td>" in page
        assert ">slower</td>" in page


def test_what_does_not_count_and_the_machine_are_told() -> None:
    page = shown(markdown(made.summary(complete=False)))
    assert "20 of 48 windows have finished" in page
    assert "<li><strong>triton at 8 users</strong>, INVALID: 9 wrong answers" in page
    assert "<li><strong>fastapi:torch</strong>, Left out: its answers differ" in page
    assert "Example CPU 3 GHz, 4 CPUs (server 0-2, generator 3), no GPU" in page
    assert "infersweep compare --model image_classifier --seed 1\n</code>" in page


def test_a_nasty_name_is_shown_letter_by_letter() -> None:
    page = shown(f"| head |\n|---|\n| {escape(NASTY)} |\n")
    (cell,) = re.findall(r"<td>(.*?)</td>", page)
    # What is left is text, and the invisible space that breaks the mention.
    plain = cell.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&")
    assert plain.replace("\u200b", "") == NASTY.replace("\n", " ")
    assert "@octocat" not in cell


def test_a_nasty_name_breaks_no_table_and_makes_no_markup() -> None:
    plain, nasty = shown(markdown(made.summary())), shown(markdown(renamed(NASTY)))
    for tag in ("<table>", "<tr>", "<td", "<th", "<li>", "<h3>", "<strong>", "<code"):
        assert plain.count(tag) == nasty.count(tag), tag
    for tag in ("<a", "<img", "<em>", "<s>"):
        assert tag not in nasty


def test_a_command_cannot_end_its_block() -> None:
    command = "infersweep load --url 'x\n```\n<b>y</b>'"
    page = shown(fenced(command))
    assert page.count("<pre>") == 1
    assert "<b>" not in page


def test_a_run_without_a_rank_has_no_table() -> None:
    summary = with_points(made.summary(), verdict="INVALID")
    ranking = summary.ranking.model_copy(update={"rows": (), "winner": None, "sentence": "None."})
    text = markdown(summary.model_copy(update={"ranking": ranking}))
    assert "**No answer.** None." in text
    assert "| #" not in text


def test_the_terminal_shows_every_verdict_and_reason() -> None:
    text = told(made.summary())
    assert len(re.findall(r"\bVALID\b", text)) == 10
    assert "triton at 8 users: INVALID: 9 wrong answers" in text
    assert "fastapi:torch: Left out: its answers differ" in text
    assert text.count("too few") == 4
    assert text.index("onnxruntime") < text.index("triton")


def test_the_terminal_shows_each_ratio_with_its_interval() -> None:
    summary = made.summary()
    found = summary.ranking.rows[1].against_first
    assert found is not None
    interval = f"{found.ratio:.2f} ({found.low:.2f} to {found.high:.2f})"
    assert f"triton serves {interval} times what onnxruntime does: slower" in told(summary)


@pytest.mark.parametrize("label", ["[red]x[/]", "[/]"])
def test_the_terminal_takes_brackets_for_text(label: str) -> None:
    assert label in told(renamed(label))
