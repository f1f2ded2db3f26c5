"""The page of a playbook and its figures."""

from __future__ import annotations

import json
import re
from html import unescape
from math import exp, log
from pathlib import Path
from statistics import fmean

import pytest

from loadtest.playbook.figures import combination_figure, forest_figure, values_figure
from loadtest.playbook.judging import values_of
from loadtest.playbook.page import NAME, render, write_page
from loadtest.playbook.record import VERDICTS, Playbook
from loadtest.playbook.wording import answer_of, combination_sentence, extremes_of
from tests import sample_playbook as made
from tests.pages import NASTY, spoiled, text_of

FOLDER = "results/of mine"


def part(page: str, identity: str) -> str:
    found = re.search(rf'<(section|article)[^>]* id="{identity}".*?</\1>', page, re.S)
    assert found, identity
    return found[0]


def titles(page: str, identity: str) -> list[str]:
    """Of the tips in a table, from the top."""
    rows = re.findall(r'<th scope="row" class="tip">(.*?)<br>', part(page, identity), re.S)
    return [text_of(row) for row in rows]


def wicked() -> Playbook:
    """Every text that a user or a server may have written does its worst."""
    kept = {*VERDICTS, "throughput", "p50"}
    return Playbook.model_validate(spoiled(json.loads(made.playbook().model_dump_json()), kept))


@pytest.fixture(scope="module")
def page() -> str:
    return render(made.playbook(), FOLDER)


def test_the_answer_comes_first_and_counts_every_tip(page: str) -> None:
    answer = answer_of(made.playbook())
    assert answer == (
        "Of 7 tips 1 holds on this machine for tiny, 1 in part, 1 makes no difference, "
        "1 does the opposite, 1 breaks accuracy, 1 cannot be measured here, 1 failed."
    )
    text = text_of(page)
    assert text.index(answer) < text.index("Tips by effect")


def test_what_breaks_accuracy_is_no_gain() -> None:
    """Though its ratio is the largest."""
    found = extremes_of(made.playbook())
    assert "The largest gain: Title of fp16, 2.00 times" in found
    assert "The largest loss: Title of workers, 0.40 times" in found


def test_a_playbook_in_which_nothing_holds_says_none() -> None:
    found = made.playbook(experiments=(made.opposite(), made.opposite()), combination=None)
    assert answer_of(found) == ("Of 2 tips none holds on this machine for tiny, 2 do the opposite.")
    assert "gain" not in extremes_of(found)


def test_the_table_keeps_the_order_of_effects_and_leads_to_each_experiment(page: str) -> None:
    measured = made.playbook().experiments[:5]
    assert titles(page, "tips") == [record.title for record in measured]
    for record in measured:
        assert f'href="#tip-{record.name}"' in part(page, "tips")
        assert record.sentence in text_of(part(page, f"tip-{record.name}"))


def test_a_verdict_is_told_in_words_not_only_in_colour(page: str) -> None:
    tips = part(page, "tips")
    for record in made.playbook().experiments[:5]:
        assert re.search(rf'<span class="badge [a-z]+">{record.verdict}</span>', tips)


def test_what_failed_is_not_among_what_cannot_be_measured(page: str) -> None:
    unmeasured = part(page, "unmeasured")
    assert titles(page, "unmeasured") == ["Title of encoding", "Title of tensorrt"]
    text = text_of(unmeasured)
    assert re.search(r"failed .* the server ended with code 1\.", text)
    assert re.search(r"cannot be measured here .* no NVIDIA GPU: no driver\.", text)
    assert "tip-tensorrt" not in page, "it has nothing to show"


def test_an_experiment_shows_its_arms_and_what_does_not_count(page: str) -> None:
    text = text_of(part(page, "tip-allocator"))
    assert "what other is, in words" in text
    assert "provider: CPU" in text
    assert f"other, start 4, window 1: {made.STALLED}" in text
    assert "docs/playbook.md#allocator" in text
    assert "answers: 4 of 16 answers differ" in text_of(part(page, "tip-int8"))


def test_memory_and_start_are_shown_as_differences_with_their_sign(page: str) -> None:
    text = text_of(part(page, "tips"))
    assert "+700 MB +3.00 s" in text
    assert "-80.0 MB -0.50 s" in text


def test_each_experiment_says_how_to_measure_it_alone_again(page: str) -> None:
    command = "infersweep playbook --model tiny --quick --only fp16 --out 'results/of mine'"
    assert command in unescape(part(page, "tip-fp16"))


def test_the_combination_says_by_how_much_the_product_was_off() -> None:
    """2 times 1.2 are 2.4; 1.92 were measured, a fifth less."""
    found = made.combination(measured=192.0)
    told = combination_sentence(found)
    assert told.startswith("Effects do not simply multiply:")
    assert told.endswith(", 20% less than that.")
    text = text_of(part(render(made.playbook(combination=found), FOLDER), "together"))
    assert told in text
    assert "workers : opposite" in text


def test_a_product_within_the_interval_is_not_called_wrong() -> None:
    told = combination_sentence(made.combination(measured=241.0))
    assert "does not contradict it" in told
    assert "do not simply multiply" not in told


def test_a_combination_that_failed_tells_why() -> None:
    broken = made.failed()
    told = combination_sentence(made.combination(experiment=broken))
    assert told.endswith("together they could not be measured: the server ended with code 1.")
    changed = made.playbook(combination=made.combination(experiment=broken))
    assert told in text_of(part(render(changed, FOLDER), "together"))


def test_a_playbook_without_any_measurement_has_no_figures() -> None:
    page = render(made.playbook(experiments=(made.missing(),), combination=None), FOLDER)
    assert 'class="plot"' not in page
    assert 'class="later"' not in page
    assert "1 cannot be measured here" in text_of(page)


def test_an_unfinished_playbook_says_so(page: str) -> None:
    assert "not finished" in text_of(render(made.playbook(complete=False), FOLDER))
    assert "not finished" not in text_of(page)


def test_whatever_was_written_by_others_is_escaped() -> None:
    page = render(wicked(), f"results/{NASTY}")
    assert "<img" not in re.sub(r'<script id="plotly">.*?</script>', "", page, flags=re.S)
    assert "<b>bold" not in page
    assert text_of(page).count(NASTY) > 30
    blocks = re.findall(r'<script type="application/json" id="[^"]+">(.*?)</script>', page, re.S)
    forest, *_ = (json.loads(block) for block in blocks)
    assert "&lt;b&gt;bold" in json.dumps(forest["data"])


def test_the_page_names_no_resource_outside_its_folder(page: str) -> None:
    bare = re.sub(r'<script id="plotly">.*?</script>', "", page, flags=re.S)
    targets = re.findall(r'(?:src|href)\s*=\s*"([^"]*)"', bare)
    others = {target for target in targets if not target.startswith(("#", "data:"))}
    own = {f"experiments/{record.name}.json" for record in made.playbook().experiments[:6]}
    assert others == {"playbook.json", "combination.json", *own}
    assert not re.search(r"url\(|@import|https?:", bare)
    assert "default-src 'none'" in bare


def test_the_page_is_written_whole_or_not_at_all(tmp_path: Path) -> None:
    found = write_page(tmp_path, made.playbook())
    assert found == tmp_path / NAME
    assert [file.name for file in tmp_path.iterdir()] == [NAME]
    assert f"--out {tmp_path}" in found.read_text("utf-8")


def test_the_forest_has_every_measured_ratio_with_its_interval() -> None:
    records = made.playbook().experiments
    figure = forest_figure(records)
    drawn = {}
    for trace in figure.data[1:]:
        assert trace.name in VERDICTS
        for at, ratio, up in zip(trace.y, trace.x, trace.error_x.array, strict=True):
            drawn[at] = (trace.name, ratio, ratio + up)
    effects = [(record.verdict, record.effect) for record in records[:5]]
    for at, (verdict, effect) in enumerate(effects):
        assert effect is not None
        assert drawn[at] == (verdict, effect.ratio, pytest.approx(effect.high))
    assert len(drawn) == len(effects)
    assert list(figure.layout.yaxis.ticktext) == [record.name for record in records[:5]]


def test_a_stated_range_without_an_end_reaches_the_edge() -> None:
    figure = forest_figure([made.opposite(), made.holds()])
    stated = [x for x in figure.data[0].x if x is not None]
    edge = 10 ** figure.layout.xaxis.range[1]
    assert stated == [1.5, pytest.approx(edge, rel=0.01), 1.5, 3.0]


def test_one_noisy_interval_leaves_the_others_room() -> None:
    noisy = made.in_part()
    effect = noisy.effects[0].model_copy(update={"low": 1e-5, "high": 1e5})
    figure = forest_figure([noisy.model_copy(update={"effects": (effect,)}), made.holds()])
    low, high = (10**end for end in figure.layout.xaxis.range)
    assert 0.1 < low < 1 < high < 10


def test_the_dots_are_the_repeats_and_the_line_their_geometric_mean() -> None:
    record = made.no_difference()
    changed = record.arms[1]
    figure = values_figure(record)
    assert figure is not None
    line, dots, hollow = (trace for trace in figure.data if trace.y[0] == 1)
    values = values_of(changed, "p50")
    assert list(dots.x) == values
    assert list(line.x) == [pytest.approx(exp(fmean(map(log, values))))]
    assert list(hollow.x) == [changed.windows[-1].p50_ms]
    assert hollow.marker.symbol.endswith("-open")


def test_an_experiment_without_values_has_no_figure() -> None:
    assert values_figure(made.failed()) is None


def test_parts_stand_upon_each_other_up_to_the_prediction() -> None:
    found = made.combination()
    figure = combination_figure(found)
    steps = [tuple(trace.x) for trace in figure.data if trace.mode == "lines"]
    first, second = (one.ratio for one in found.parts)
    assert steps[0] == (1, first)
    assert steps[1] == (first, first * second)
    assert steps[2] == (1, pytest.approx(found.predicted))
    effect = found.experiment.effect
    assert effect is not None
    assert steps[3] == (1, effect.ratio)
