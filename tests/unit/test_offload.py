"""Onboard against offload: outages simulated, the decision, the page, and what is refused."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from loadtest.camera_schedule import Cameras
from loadtest.cli import main
from loadtest.histogram import encode, new_histogram
from loadtest.links.profile import LinkProfile
from loadtest.offload.conclude import _is_here, does_count
from loadtest.offload.decision import decide
from loadtest.offload.fallback import Scene, longest_gap_ns, newest_answer, simulate
from loadtest.offload.outage import MODES, at_the_server, service_samples, simulated
from loadtest.offload.page import MODES as WAYS
from loadtest.offload.page import answer_of, render
from loadtest.offload.record import OffloadRecord, SideRecord
from loadtest.results import Histograms
from tests.pages import text_of
from tests.sample_offload import asked, record, repeat, side, three

MS = 1_000_000
LINK = LinkProfile("still", one_way_delay_ms=20, uplink_bps=8e6, downlink_bps=8e6)


def scene(**changed: object) -> Scene:
    """One camera at 10 fps for 12 s; a frame of 10 kB takes 10 ms to send, and 20 ms each way.

    The server takes 5 ms, the device 60; the link is down from 4 to 6 s.
    """
    return replace(
        Scene(
            cameras=Cameras(1, 10.0, "synchronised"),
            policy="latest-only",
            deadline_ns=150 * MS,
            link=LINK,
            request_bytes=10_000,
            reply_bytes=0,
            onboard_ns=(60 * MS,),
            remote_ns=(5 * MS,),
            length_s=12.0,
            outage_s=(4.0, 6.0),
        ),
        **changed,
    )


def test_without_an_outage_each_way_has_its_own_age() -> None:
    quiet = scene(outage_s=(100.0, 101.0))
    for mode, age_ms in (("onboard", 60), ("offload", 10 + 20 + 5 + 20), ("fallback", 55)):
        answers = simulate(quiet, mode)
        assert len(answers.ages_ns) == 120
        assert set(answers.ages_ns.tolist()) == {age_ms * MS}
        assert answers.missed_share(quiet.deadline_ns) == 0
        assert answers.onboard.all() == (mode == "onboard")


def test_offload_alone_is_silent_for_as_long_as_the_link_is_down() -> None:
    """The frame of 4.0 s waits at the bottleneck until 6.0 s; of the others the newest is left.

    Frames of 3.9 s are answered at 3.955 s; the one of 4.0 s at 6.055 s.
    """
    answers = simulate(scene(), "offload")
    assert longest_gap_ns(answers, 12.0) == (6_055 - 3_955) * MS
    lost = (~answers.answered).sum()
    assert lost == 19, "those of 4.1 to 5.9 s"
    assert answers.missed_share(150 * MS) == (19 + 1) / 120
    # The one that waited for the first answer is sent at 6.055 s, 55 ms late.
    late = answers.ages_ns[answers.ages_ns > 55 * MS].tolist()
    assert late == [2_055 * MS, (55 + 55) * MS, (10 + 55) * MS]


def test_falling_back_loses_what_the_deadline_takes_to_find_out() -> None:
    """The frame of 4.0 s is given up at 4.15 s for that of 4.1 s, which is answered at 4.21 s."""
    found = scene()
    answers = simulate(found, "fallback")
    at = {int(due): row for row, due in enumerate(answers.due_ns // MS)}
    assert answers.done_ns[at[4000]] == -1
    assert answers.done_ns[at[4100]] == 4_210 * MS
    assert answers.onboard[at[4100]]
    assert answers.missed_share(found.deadline_ns) == 1 / 120
    # The late answer is there at 6.055 s: the frame in hand is onboard's, the next is sent again.
    assert answers.onboard[at[6000]]
    assert not answers.onboard[at[6100]]
    assert int(answers.onboard.sum()) == 20
    assert longest_gap_ns(answers, 12.0) < longest_gap_ns(simulate(found, "offload"), 12.0) / 5


def test_a_frame_that_nothing_newer_waits_behind_is_computed_onboard_itself() -> None:
    slow = scene(cameras=Cameras(1, 2.0, "synchronised"), length_s=8.0)
    answers = simulate(slow, "fallback")
    (row,) = np.flatnonzero(answers.due_ns == 4_000 * MS)
    assert answers.done_ns[row] == (4_000 + 150 + 60) * MS
    assert answers.answered.all()


@pytest.mark.parametrize(("per_camera", "ages_ms"), [(False, {55, 65, 75}), (True, {55})])
def test_cameras_share_one_bottleneck_or_have_one_each(per_camera: bool, ages_ms: set[int]) -> None:
    three = scene(
        cameras=Cameras(3, 10.0, "synchronised"), outage_s=(50.0, 51.0), link_per_camera=per_camera
    )
    answers = simulate(three, "offload")
    assert {age // MS for age in answers.ages_ns.tolist()} == ages_ms


def test_a_backlog_of_a_camera_that_keeps_all_is_dropped_late_only_if_it_says_so() -> None:
    kept = simulate(scene(policy="fifo"), "offload")
    assert kept.answered.all()
    dropped = simulate(scene(policy="drop-late"), "offload")
    assert 0 < (~dropped.answered).sum() < 20
    assert dropped.missed_share(150 * MS) < kept.missed_share(150 * MS)


def test_the_same_seed_gives_the_same_outage() -> None:
    drawn = scene(onboard_ns=(50 * MS, 90 * MS), cameras=Cameras(2, 10.0))
    first, again, other = (simulate(drawn, "fallback", seed).done_ns for seed in (1, 1, 2))
    assert (first == again).all()
    assert len(first) != len(other) or (first != other).any()


def test_the_newest_answer_ages_until_the_next() -> None:
    answers = simulate(scene(length_s=8.0), "offload")
    seconds, ages_ms = newest_answer(answers, 0.15)
    # Each answer is 55 ms old and stays the newest for a period.
    assert ages_ms[0] == pytest.approx(155)
    # In the gap the line climbs by a second a second, from the answer to the frame of 3.9 s.
    gap = (seconds > 3.96) & (seconds < 6.06)
    assert ages_ms[gap] == pytest.approx((seconds[gap] - 3.9) * 1e3)
    assert ages_ms.max() == pytest.approx(6_055 - 3_900)


def test_the_servers_own_time_is_what_the_link_leaves() -> None:
    """10 kB at 8 Mbps take 10 ms, 1.5 kB at 12 Mbps 1 ms, the round trip 70 ms."""
    assert asked().link_ms == pytest.approx(81)
    found = at_the_server(np.array([86 * MS, 80 * MS]), asked())
    assert found.tolist() == [5 * MS, 0]


def test_service_times_are_those_of_right_answers_however_often_they_came() -> None:
    right, wrong = new_histogram(), new_histogram()
    right.record_value(2 * MS, 3)
    wrong.record_value(9 * MS, 5)
    one = Histograms(
        trial="x",
        response_time=(),
        service_time=({"ok": encode(right), "timeout": encode(wrong)}, {"ok": encode(right)}),
        lateness="",
        first_byte="",
    )
    found = service_samples([one])
    assert len(found) == 6
    assert found == pytest.approx(2 * MS, rel=1e-3)
    assert len(service_samples([])) == 0


def test_an_outage_is_told_with_its_spread_and_without_jitter_twice() -> None:
    found = simulated(asked(), np.array([60 * MS]), np.array([90 * MS]))
    by_mode = {one.mode: one for one in found.outcomes}
    assert by_mode["onboard"].missed_share.high == 0
    offload, fallback = by_mode["offload"], by_mode["fallback"]
    # Of 5 s of 60 nothing is in time, and what waited at its end is late too.
    assert 5 / 60 <= offload.missed_share.low <= offload.missed_share.high < 6 / 60
    assert fallback.missed_share.high < offload.missed_share.low / 5
    assert 0 < fallback.onboard_share.value < offload.missed_share.high + 1 / 600
    # Without an outage all take the 90 ms that were measured; jitter would add up to 10.
    assert offload.missed_in_outage_share.value > 0.95
    ages_ms = [age_ms for at_s, age_ms in fallback.line if at_s < 20]
    assert ages_ms == pytest.approx([190] * len(ages_ms), abs=0.1)
    assert "With the link down for 5 s, offload alone misses" in found.sentence


def test_missed_deadlines_decide_before_ages_do() -> None:
    """Onboard is faster, yet misses 40%."""
    found = decide(
        side("onboard", *three(missed_share=0.4, age_p99_ms=20.0)), side("offload", *three())
    )
    assert (found.better, found.by) == ("offload", "missed deadlines")
    assert found.ratio == pytest.approx(1 / 0.6)
    assert found.low is not None
    assert found.low > 1
    assert "40.00% onboard and 0.00% offloaded" in found.sentence


def test_the_slow_frames_decide_where_all_are_in_time() -> None:
    ages = [repeat(number, age_p99_ms=90.0 + number) for number in (1, 2, 3)]
    found = decide(side("onboard", *three()), side("offload", *ages))
    assert (found.better, found.by) == ("onboard", "p99 frame age")
    assert found.ratio == pytest.approx(92 / 60.2, rel=1e-3)
    assert "missed shares" not in found.sentence


def test_missed_deadlines_that_vary_too_much_to_decide_are_told_nevertheless() -> None:
    varied = [
        repeat(number, missed_share=share, age_p99_ms=90.0 + number)
        for number, share in enumerate((0.1, 0.9, 0.5))
    ]
    found = decide(side("onboard", *three()), side("offload", *varied, missed_share=0.5))
    assert (found.better, found.by) == ("onboard", "p99 frame age")
    assert "missed shares (0.00% and 50.00%) do not differ for sure" in found.sentence


def test_the_median_decides_where_there_are_too_few_frames_for_a_p99() -> None:
    found = decide(
        side("onboard", *three(age_p99_ms=None)),
        side("offload", *three(age_p99_ms=None, age_p50_ms=80.0)),
    )
    assert (found.better, found.by) == ("onboard", "median frame age")
    assert found.ratio == pytest.approx(2)


def test_a_side_with_no_frame_in_time_loses_without_a_ratio() -> None:
    found = decide(side("onboard", *three()), side("offload", *three(missed_share=1.0)))
    assert (found.better, found.by, found.ratio) == ("onboard", "missed deadlines", None)


@pytest.mark.parametrize(
    ("offload", "told"),
    [
        (side("offload", *three()), "No significant difference"),
        (side("offload", repeat(1), repeat(2)), "2 repeats of offload"),
        (side("offload", excluded="it died"), "was not measured: it died"),
        (
            side("offload", *three(counts=False, verdict="INVALID", reasons=["client-bound: 99%"])),
            "No window of offload (onnxruntime) counts: client-bound: 99%",
        ),
    ],
    ids=["alike", "too few", "excluded", "invalid"],
)
def test_what_cannot_be_told_is_not_decided(offload: SideRecord, told: str) -> None:
    found = decide(side("onboard", *three()), offload)
    assert found.better is None
    assert told in found.sentence


@pytest.mark.parametrize(
    ("reasons", "counts"),
    [
        ([], True),
        (["failed requests: 40 timeout"], True),
        (["the streams fell behind: 50 of 100 planned requests were sent", "not steady: x"], True),
        (["not steady: drift"], False),
        (["failed requests: 40 timeout", "client-bound: the generator used 99%"], False),
        (["link-bound: the relay used 95% of a CPU"], False),
    ],
)
def test_late_answers_are_a_result_and_other_faults_are_not(
    reasons: list[str], counts: bool
) -> None:
    assert does_count("INVALID" if reasons else "VALID", reasons) is counts


def test_the_page_tells_the_decision_the_outage_and_the_sources_of_the_link() -> None:
    found = record()
    page = render(found)
    text = text_of(page)
    assert answer_of(found).label == "Onboard"
    assert found.outage is not None
    for told in (found.decision.sentence, found.outage.sentence, *found.notes, "no rail"):
        assert told in text
    assert "35 ms (WebPageTest" in text
    assert "<b>roof</b>" not in page
    assert 'id="outage-data"' in page
    assert OffloadRecord.model_validate_json(found.model_dump_json()) == found


def test_a_page_without_an_outage_says_why_and_an_unfinished_one_says_so() -> None:
    text = text_of(render(record(outage=None, outage_missing="none was asked for", complete=False)))
    assert "Not simulated: none was asked for." in text
    assert "This run is not finished" in text


@pytest.mark.parametrize(
    ("label", "here"),
    [
        ("onnxruntime", True),
        ("remote:http://localhost:8000", True),
        ("remote:http://edge-1:8000", False),
    ],
)
def test_a_remote_server_may_be_this_machine(label: str, here: bool) -> None:
    assert _is_here(label) is here


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ([], "Missing option '--link'"),
        (["--link", "6g"], "'6g' is no link profile and no file"),
        (["--link", "lte", "--deadline", "150"], "--deadline '150' is no time"),
        (["--link", "lte", "--policy", "newest"], "there is no frame policy 'newest'"),
        (["--link", "lte", "--outage", "30s"], "is more than 20 s of a minute"),
        (["--link", "lte", "--fps", "0"], "--fps is 0"),
        (["--link", "lte", "--remote", "grpc://edge-1:8001"], "both sides are asked alike"),
        (["--link", "lte", "--remote", "https://edge-1"], "its certificate would be checked"),
        (["--link", "lte", "--remote", "http://a", "--remote-backend", "null"], "two servers"),
        (["--link", "lte", "--backend", "onnxruntime,fastapi"], "names 2"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_starts(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    told: str,
) -> None:
    monkeypatch.setattr(sys, "argv", ["infersweep", "offload", *arguments])
    with pytest.raises(SystemExit) as left:
        main()
    error = capsys.readouterr().err
    assert left.value.code == 2
    assert told in error
    assert error.count("\n") <= 2


def test_the_page_names_every_way_to_meet_an_outage() -> None:
    assert tuple(WAYS) == MODES


def test_a_link_file_that_cannot_be_is_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    file = tmp_path / "roof.toml"
    file.write_text("one_way_delay_ms = 5\njitter_ms = 6\nuplink_bps = 1e6\ndownlink_bps = 1e6\n")
    for command in (["load", "--backend", "null"], ["compare"], ["slo", "-o", "p99<=5ms"]):
        monkeypatch.setattr(sys, "argv", ["infersweep", *command, "--link", str(file)])
        with pytest.raises(SystemExit) as left:
            main()
        assert left.value.code == 2
        assert "some bytes would arrive before they were sent" in capsys.readouterr().err
