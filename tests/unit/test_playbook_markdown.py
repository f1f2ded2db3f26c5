"""A playbook in Markdown and in the terminal."""

from __future__ import annotations

import re
from io import StringIO

import pytest
from rich.console import Console
from rich.text import Text

from loadtest.playbook.markdown import to_markdown
from loadtest.playbook.record import VERDICTS
from loadtest.playbook.terminal import line, show, show_list
from loadtest.playbook.wording import answer_of, combination_sentence, lost, times
from loadtest.report.markdown import escape
from tests import sample_playbook as made

NASTY = "<b>bold</b>|`@team` [red]x[/] https://example.org"


def rows(text: str) -> list[list[str]]:
    """Cells of all tables, heads among them."""
    lines = [one for one in text.splitlines() if one.startswith("| ") and "---" not in one]
    return [[cell.strip() for cell in one.strip("|").split("|")] for one in lines]


def row_of(text: str, title: str) -> list[str]:
    (found,) = [row for row in rows(text) if row[0] == title]
    return found


def printed(width: int, **changes: object) -> str:
    console = Console(file=StringIO(), width=width)
    show(console, made.playbook(**changes))
    assert isinstance(console.file, StringIO)
    return console.file.getvalue()


def test_the_table_has_the_tips_by_effect() -> None:
    text = to_markdown(made.playbook())
    measured = made.playbook().experiments[:5]
    places = [text.index(f"| {record.title} |") for record in measured]
    assert places == sorted(places)
    assert row_of(text, "Title of workers") == [
        *("Title of workers", "With workers it is faster.", "1.5 times or more"),
        *(rows(text)[2][3], "0", "+700 MB", "+3.00 s", "**opposite**"),
    ]
    effect = made.opposite().effect
    assert effect is not None
    assert effect.ratio == pytest.approx(0.4)
    assert rows(text)[2][3].startswith("0.40 (0.3")


def test_a_ratio_of_a_time_names_it() -> None:
    assert row_of(to_markdown(made.playbook()), "Title of allocator")[3].endswith(", p50")


def test_what_was_not_measured_has_its_own_table_with_reasons() -> None:
    text = to_markdown(made.playbook())
    assert row_of(text, "Title of encoding")[2:] == ["failed", "the server ended with code 1."]
    assert row_of(text, "Title of tensorrt")[2:] == [
        *("cannot be measured here", "no NVIDIA GPU: no driver."),
    ]


def test_the_combination_has_parts_prediction_and_measurement() -> None:
    text = to_markdown(made.playbook())
    assert escape(combination_sentence(made.combination())) in text
    assert row_of(text, "**predicted**")[2] == times(2 * 1.2)
    assert row_of(text, "**measured**")[2] == times(2.1)
    assert "Left out: workers (opposite)." in text
    assert "predicted" not in to_markdown(made.playbook(combination=None))


def test_machine_date_versions_pace_and_command_are_there() -> None:
    playbook = made.playbook()
    text = to_markdown(playbook)
    for told in (playbook.machine.cpu_model, "onnxruntime 1.31", "2026-05-01 12:00", playbook.pace):
        assert told in text
    assert f"```sh\n{playbook.command}\n```" in text
    assert text.endswith("\n")


def test_markdown_reads_nothing_in_what_was_written_by_others() -> None:
    record = made.holds().model_copy(update={"title": NASTY, "claim": NASTY})
    gone = made.missing().model_copy(update={"title": NASTY, "sentence": f"Missing: {NASTY}"})
    text = to_markdown(made.playbook(experiments=(record, gone), model=NASTY))
    for harm in ("<b>", "@team", "https://", "`@", "[red]"):
        assert harm not in text
    assert {len(row) for row in rows(text)} == {8, 4}


@pytest.mark.parametrize("width", [100, 80])
def test_the_terminal_holds_all_in_its_columns(width: int) -> None:
    text = printed(width)
    assert max(map(len, text.splitlines())) <= width
    told = " ".join(text.split())
    assert answer_of(made.playbook()) in told
    assert combination_sentence(made.combination()) in told
    assert re.search(r"workers +opposite +0\.40 \(0\.39-0\.41\) +1\.5\+", text)
    assert "tensorrt: Cannot be measured here: no NVIDIA GPU: no driver." in told
    assert ("+700 MB" in text) == (width == 100)


def test_the_terminal_says_that_a_playbook_is_not_finished() -> None:
    assert "Not finished" in printed(100, complete=False)
    assert "Not finished" not in printed(100)


def test_each_experiment_ends_with_its_verdict_and_reason_in_one_line() -> None:
    """Whatever its name is, it is shown and not read as markup."""
    for record in made.playbook().experiments:
        told = line(record.model_copy(update={"name": "a[red]name"}))
        text = Text.from_markup(told)
        label = "Failed" if record.failed else record.verdict.capitalize()
        assert text.plain.startswith(f"a[red]name: {label}: ")
        assert "\n" not in text.plain
        assert [str(span.style) for span in text.spans] != []
    assert {one.verdict for one in made.playbook().experiments} == set(VERDICTS)


def test_the_list_says_what_cannot_be_measured_and_why() -> None:
    console = Console(file=StringIO(), width=80)
    reason = "no NVIDIA GPU: [nothing] was found"
    show_list(console, [("fp16", "Half", "3 to 5 times", ""), ("trt", "TRT", "2 times", reason)])
    assert isinstance(console.file, StringIO)
    text = console.file.getvalue()
    assert re.search(r"fp16 +Half +3-5 +can be measured", text)
    assert re.search(rf"trt +TRT +2 +{re.escape(reason)}", text)


@pytest.mark.parametrize(
    ("share", "told"),
    [
        (None, "-"),
        (0.0, "0"),
        (-1e-16, "0"),
        (2e-9, "below 0.01%"),
        (0.004, "0.40%"),
        (1, "100.0%"),
    ],
)
def test_a_lost_share_is_zero_only_where_nothing_is_lost(share: float | None, told: str) -> None:
    assert lost(share) == told


@pytest.mark.parametrize(
    ("ratio", "told"), [(0.0123, "0.012"), (0.5, "0.50"), (12.34, "12.3"), (1234.5, "1,234")]
)
def test_a_ratio_has_the_digits_that_mean_something(ratio: float, told: str) -> None:
    assert times(ratio) == told
