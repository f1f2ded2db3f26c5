"""What a report says of frames: on the page, in Markdown and in the terminal."""

from __future__ import annotations

import re

from loadtest.delivered import Delivered, FramesRecord
from loadtest.ranking import rank_points
from loadtest.report.frames import MOST, frames_lines, frames_of
from loadtest.report.markdown import markdown
from loadtest.report.page import render
from loadtest.results import Summary
from tests import sample_report as made
from tests.sample_trials import outcomes as outcomes_of

HOSTILE = "<b>down</b>"
LINE = (
    "onnxruntime, 4 users, drop-late, deadline 50 ms: 19.5 frames/s delivered of 189.8 due; age "
    "p50 12.5, p99 too few ms; of 200 frames 9 (4.5%) missed, 5 (2.5%) dropped; longest gap 350 ms"
)


def delivered(name: str, **changes: object) -> Delivered:
    values = {
        "name": name,
        "frames": 200,
        "delivered_fps": 19.5,
        "age_p50_ms": 12.5,
        "age_p99_ms": None,
        "missed": 9,
        "dropped": 5,
        "dropped_by_policy": 5,
        "longest_gap_ms": 350.0,
    }
    return Delivered.model_validate({**values, **changes})


def summary(*streams: Delivered, **changes: object) -> Summary:
    told = FramesRecord(
        policy="drop-late", deadline_ms=50, together=delivered("", **changes), streams=streams
    )
    return made.with_points(made.summary(), frames=told)


def section_of(page: str) -> str:
    start = page.index('<section id="frames"')
    return page[start : page.index("</section>", start)]


def test_each_stream_stands_on_the_page_and_all_together_above_them() -> None:
    section = section_of(render(summary(delivered("front"), delivered(HOSTILE, missed=4))))
    assert section.count('<th scope="row">front</th>') == len(frames_of(made_frames()))
    assert "&lt;b&gt;down&lt;/b&gt;" in section
    assert HOSTILE not in section
    rows = re.findall(r"<td>drop-late, deadline 50 ms</td>.*", section)
    assert len(rows) == len(frames_of(made_frames()))
    assert all("9 (4.5%)" in row and "too few" in row for row in rows)


def made_frames() -> Summary:
    return summary(delivered("front"))


def test_of_many_streams_those_that_got_least_are_shown_in_their_order() -> None:
    many = [delivered(str(number), missed=number % 50) for number in range(MOST + 20)]
    told = summary(*many)
    shown = [int(row.name) for row in frames_of(told)[0].shown]
    assert len(shown) == MOST
    assert shown == sorted(shown)
    assert min(number % 50 for number in shown) > max(
        number % 50 for number in range(MOST + 20) if number not in shown
    )
    section = section_of(render(told))
    assert f"the {MOST} of {MOST + 20} that got least" in section
    assert "<details>" in section, "so many are not spread out at once"


def test_frames_are_told_in_the_terminal_and_in_markdown() -> None:
    told = made_frames()
    assert LINE in list(frames_lines(told))
    assert "| drop-late, deadline 50 ms | 189.8 | 19.5 | 12.5 | too few | 9 (4.5%)" in markdown(
        told
    )


def test_frames_that_were_dropped_on_purpose_did_not_fail() -> None:
    outcomes = outcomes_of(ok=60, dropped=30, timeout=10)
    backends = made.with_points(made.summary(), outcomes=outcomes, verdict="VALID").backends
    assert {row.failed_share for row in rank_points(backends, {}).rows} == {0.1}


def test_without_a_deadline_nothing_is_missed() -> None:
    (line, *_) = frames_lines(summary(delivered("front", missed=None), missed=None))
    assert "of 200 frames 5 (2.5%) dropped" in line


def test_a_run_without_streams_has_no_section_on_frames() -> None:
    plain = made.summary()
    assert 'id="frames"' not in render(plain)
    assert not list(frames_lines(plain))
    assert "longest gap" not in markdown(plain)
