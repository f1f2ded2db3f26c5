"""Links: what a message takes, which profiles can be, and what tc would be told."""

from __future__ import annotations

import json
import math
import random
import subprocess
import sys
from dataclasses import fields, replace
from itertools import pairwise, takewhile
from pathlib import Path

import numpy as np
import pytest

from loadtest.likeness import unlike_servers
from loadtest.links import crossing as crossing_of
from loadtest.links import netem, relay, usage
from loadtest.links.bound import link_bound, unless_link_bound
from loadtest.links.check import Measured, compare, one_way_delay_ms, pings_for
from loadtest.links.model import (
    Flow,
    Link,
    OutageClock,
    _outages_ns,
    arrivals_ns,
    link_of_connection,
    message_time_ns,
)
from loadtest.links.profile import ASSUMPTION, NAMED, LinkProfile, Outages, link_profile
from loadtest.links.running import RunningLink
from loadtest.links.told import record_of, text_of
from loadtest.results import BackendRecord
from loadtest.validity import cause_of
from serving.errors import MachineError, UsageError
from tests import sample_trials as made

MS = 1_000_000
JPEG_BYTES = 50_000
TENSOR_BYTES = 3_700_000
ALL_LOST = 1 - 1e-12


def lte(**changed: object) -> LinkProfile:
    """LTE without jitter, 35 ms each way and 12 Mbps: 1.5 kB take 1 ms."""
    return replace(NAMED["lte"], jitter_ms=0.0, **changed)


def times_ms(profile: LinkProfile, count: int, size_bytes: int, seed: int = 0) -> list[float]:
    uplink = Link(profile, seed).uplink
    return [message_time_ns(uplink, size_bytes) / MS for _ in range(count)]


@pytest.mark.parametrize(
    ("size_bytes", "expected_ms"),
    [(JPEG_BYTES, 50_000 * 8 / 12e6 * 1e3 + 35), (TENSOR_BYTES, 3.7e6 * 8 / 12e6 * 1e3 + 35)],
)
def test_a_message_takes_its_bytes_at_the_rate_and_the_delay(
    size_bytes: int, expected_ms: float
) -> None:
    assert times_ms(lte(), 1, size_bytes) == [pytest.approx(expected_ms, abs=1e-5)]


def test_up_and_down_have_rates_of_their_own() -> None:
    link = Link(replace(NAMED["slow-4g"], jitter_ms=0.0))
    assert message_time_ns(link.uplink, 750) == 75 * MS + 8 * MS
    assert message_time_ns(link.downlink, 1600) == 75 * MS + 8 * MS


def test_messages_queue_behind_one_another_at_the_bottleneck() -> None:
    uplink = Link(lte()).uplink
    sent = [(0, 15_000), (0, 15_000), (5 * MS, 1_500), (100 * MS, 1_500)]
    assert list(arrivals_ns(uplink, sent)) == [45 * MS, 55 * MS, 56 * MS, 136 * MS]


def test_up_and_down_do_not_wait_for_one_another() -> None:
    link = Link(lte())
    link.uplink.carry(Flow(), 0, TENSOR_BYTES)
    assert link.downlink.carry(Flow(), 0, 1_500) == 36 * MS


def test_jitter_comes_from_the_seed_and_stays_in_its_bounds() -> None:
    profile = NAMED["lte"]
    seen = times_ms(profile, 2_000, 0, seed=1)
    assert seen == times_ms(profile, 2_000, 0, seed=1)
    assert seen != times_ms(profile, 2_000, 0, seed=2)
    assert 30 <= min(seen) <= max(seen) <= 40
    # Four standard errors of the mean of a uniform distribution of width 10.
    assert abs(sum(seen) / 2_000 - 35) < 4 * 10 / math.sqrt(12 * 2_000)


def test_jitter_never_reorders_a_connection() -> None:
    flow, other = Flow(), Flow()
    uplink = Link(NAMED["5g-nsa"], 3).uplink
    arrived = [uplink.carry(flow, at * MS, 100) for at in range(500)]
    assert all(before <= after for before, after in pairwise(arrived))
    free = [uplink.carry(replace(other), (500 + at) * MS, 100) for at in range(500)]
    assert any(before > after for before, after in pairwise(free))


def test_what_is_sent_in_an_outage_waits_for_its_end() -> None:
    uplink = Link(lte(outages=Outages(((0.1, 2.0),)))).uplink
    assert uplink.carry(Flow(), 500 * MS, 1_500) == 2_100 * MS + 1 * MS + 35 * MS
    assert uplink.carry(Flow(), 3_000 * MS, 1_500) == 3_036 * MS


def test_a_message_that_an_outage_cuts_goes_on_behind_it() -> None:
    outages = Outages(((0.004, 1.0), (1.005, 0.5)))
    # 8 ms of work: 4 ms, 1 s of outage, 1 ms, 0.5 s of outage, 3 ms.
    assert Link(lte(outages=outages)).uplink.carry(Flow(), 0, 12_000) == 1_508 * MS + 35 * MS


def test_both_directions_share_an_outage() -> None:
    link = Link(lte(outages=Outages(mean_between_s=0.5, mean_length_s=0.2)), 7)
    clock = OutageClock(link.profile.outages, "7")
    start, end = clock._next(0) or (0, 0)
    for direction in (link.uplink, link.downlink):
        assert direction.carry(Flow(), start, 0) == end + 35 * MS


def test_outages_of_a_mean_take_their_share_of_the_time() -> None:
    """Of a renewal process: length / (between + length), here 1/5."""
    horizon_ns = 10_000 * 10**9
    coming = _outages_ns(Outages(mean_between_s=4.0, mean_length_s=1.0), random.Random(1))
    periods = list(takewhile(lambda period: period[1] < horizon_ns, coming))
    share = sum(end - start for start, end in periods) / horizon_ns
    # 2,000 lengths and gaps; the share's standard error is 0.2 * 0.8 * sqrt(2 / 2,000).
    assert abs(share - 0.2) < 4 * 0.2 * 0.8 * math.sqrt(2 / 2_000)


def test_a_lost_last_segment_costs_a_timeout_and_one_in_the_middle_a_round_trip() -> None:
    profile = lte(loss_share=ALL_LOST)
    assert (profile.timeout_stall_ms, profile.fast_stall_ms) == (200.0, 70.0)
    one_segment = Link(profile).uplink.carry(Flow(), 0, 1_200)
    assert one_segment == pytest.approx(0.8 * MS + 235 * MS, abs=10)
    followed = Link(profile).uplink.carry(Flow(), 0, 1_200, more=True)
    assert followed == pytest.approx(0.8 * MS + 105 * MS, abs=10)


def test_the_timeout_grows_with_the_round_trip_and_may_be_given() -> None:
    far = replace(lte(), one_way_delay_ms=300.0, jitter_ms=50.0)
    assert far.timeout_stall_ms == 2 * 300 + 4 * 50
    assert (lte(stall_ms=12.0).timeout_stall_ms, lte(stall_ms=12.0).fast_stall_ms) == (12.0, 12.0)


def test_a_lost_segment_holds_up_its_own_connection_alone() -> None:
    uplink = Link(lte(loss_share=ALL_LOST)).uplink
    flow = Flow()
    late = uplink.carry(flow, 0, 1_200)
    uplink._loss_share = 0.0
    assert uplink.carry(flow, 1 * MS, 1_200) == late
    assert uplink.carry(Flow(), 2 * MS, 1_200) < 40 * MS


def test_losses_have_the_share_of_the_profile() -> None:
    profile = lte(loss_share=0.02)
    late = sum(time > 100 for time in times_ms(profile, 5_000, 1_000, seed=4))
    assert abs(late - 100) < 4 * math.sqrt(5_000 * 0.02 * 0.98)


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"one_way_delay_ms": -1.0}, "one_way_delay_ms is -1"),
        ({"one_way_delay_ms": math.nan}, "one_way_delay_ms is nan"),
        ({"loss_share": 1.0}, "loss_share is 1, and must be below 1"),
        ({"loss_share": -0.1}, "loss_share is -0.1"),
        ({"uplink_bps": 0.0}, "uplink_bps is 0, and must be above 0"),
        ({"downlink_bps": math.inf}, "downlink_bps is inf"),
        ({"jitter_ms": 36.0}, "jitter_ms 36 is above one_way_delay_ms 35"),
        ({"stall_ms": -1.0}, "stall_ms is -1"),
        ({"outages": Outages(((1.0, 2.0), (2.0, 1.0)))}, "starts before the one in front"),
        ({"outages": Outages(((1.0, 0.0),))}, "no length above 0"),
        ({"outages": Outages(mean_between_s=1.0)}, "need both"),
        ({"outages": Outages(mean_between_s=1.0, mean_length_s=0.0)}, "must be above 0"),
        ({"outages": Outages(((1.0, 2.0),), 1.0, 1.0)}, "only one of them"),
    ],
)
def test_a_link_that_cannot_be_is_one_clear_line(wrong: dict[str, object], words: str) -> None:
    with pytest.raises(UsageError, match="link profile lte: ") as refused:
        replace(NAMED["lte"], **wrong)
    assert words in str(refused.value)
    assert "\n" not in str(refused.value)


TOML = """
one_way_delay_ms = 20
jitter_ms = 5.5
uplink_bps = 8e6
downlink_bps = 30_000_000
[outages]
mean_between_s = 60
mean_length_s = 0.5
[sources]
uplink_bps = "measured on the roof"
"""


def test_a_file_is_a_profile_and_says_what_is_assumed(tmp_path: Path) -> None:
    file = tmp_path / "drone.toml"
    file.write_text(TOML)
    read = link_profile(str(file))
    assert (read.name, read.one_way_delay_ms, read.downlink_bps) == ("drone", 20.0, 30e6)
    assert read.outages == Outages(mean_between_s=60.0, mean_length_s=0.5)
    assert read.source_of("uplink_bps") == "measured on the roof"
    assert read.source_of("jitter_ms") == ASSUMPTION
    as_json = tmp_path / "pit.json"
    as_json.write_text(
        json.dumps({"one_way_delay_ms": 1, "uplink_bps": 1, "downlink_bps": 2, "name": "mine"}
                   | {"outages": {"periods_s": [[1, 2]]}})
    )  # fmt: skip
    assert link_profile(str(as_json)).outages == Outages(((1.0, 2.0),))
    assert link_profile(str(as_json)).name == "mine"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("uplink_bps = 1", "one_way_delay_ms: Field required"),
        (TOML.replace("8e6", '"fast"'), "uplink_bps: Input should be a valid number"),
        (TOML.replace("jitter_ms", "jiter_ms"), "jiter_ms: Extra inputs are not permitted"),
        (TOML.replace("5.5", "21"), "jitter_ms 21 is above one_way_delay_ms 20"),
        (TOML.replace('uplink_bps = "m', 'uplink = "m'), "sources names 'uplink'"),
        ("one_way_delay_ms = ", "cannot be read"),
    ],
)
def test_a_wrong_file_is_one_clear_line(tmp_path: Path, text: str, words: str) -> None:
    file = tmp_path / "wrong.toml"
    file.write_text(text)
    with pytest.raises(UsageError) as refused:
        link_profile(str(file))
    assert words in str(refused.value)
    assert "\n" not in str(refused.value)


def test_an_unknown_name_names_those_that_are_known() -> None:
    with pytest.raises(UsageError, match="wifi, 5g-sa, 5g-nsa, lte, slow-4g"):
        link_profile("3g")


def test_the_docs_hold_every_value_and_source_of_the_named_profiles() -> None:
    told = (Path(__file__).parents[2] / "docs" / "links.md").read_text()
    for profile in NAMED.values():
        row = next(line for line in told.splitlines() if line.startswith(f"| `{profile.name}` |"))
        cells = [cell.strip() for cell in row.strip("|").split("|")][1:]
        assert cells == [
            f"{profile.one_way_delay_ms:g} ± {profile.jitter_ms:g}",
            f"{profile.loss_share:.2%}",
            f"{profile.uplink_bps / 1e6:g}",
            f"{profile.downlink_bps / 1e6:g}",
        ]
        assert set(profile.sources) <= {each.name for each in fields(profile)}
        for source in profile.sources.values():
            assert source.split(":")[0].split(",")[0] in told


def test_netem_is_told_the_profile_and_the_load_of_a_frame() -> None:
    up, down = netem.commands(replace(NAMED["wifi"], uplink_bps=14.48e6), "cam", "srv")
    # 14.48 Mbps of 1,448 bytes are 15.14 Mbps of frames; 0.103 s at the rate are 129 packets.
    assert up == (
        "tc qdisc replace dev cam root netem delay 2ms 1ms loss random 0.100000% "
        "rate 15140000bit limit 129"
    )
    assert down.startswith("tc qdisc replace dev srv root netem delay 2ms 1ms")
    plain, _ = netem.commands(lte(), "cam", "srv")
    assert "loss" not in plain
    assert "delay 35ms rate" in plain


@pytest.mark.parametrize("what", [{"outages": Outages(((1.0, 1.0),))}, {"stall_ms": 0.0}])
def test_netem_refuses_what_it_cannot_do(what: dict[str, object]) -> None:
    with pytest.raises(UsageError, match="tc netem cannot do that"):
        netem.commands(lte(**what), "cam", "srv")


def test_a_kernel_without_netem_is_refused_in_its_own_words(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refused(argv: object, **_: object) -> subprocess.CompletedProcess[str]:
        return subprocess.CompletedProcess((), 2, "", "a\nError: qdisc kind is unknown.\n")

    monkeypatch.setattr(subprocess, "run", refused)
    with pytest.raises(
        MachineError, match=r"machine: Error: qdisc kind is unknown\. Use the relay"
    ):
        netem.require_netem()


def test_a_measurement_is_compared_with_its_profile() -> None:
    found = compare(lte(), Measured(36.0, 11e6, 12.5e6))
    assert [each.holds for each in found] == [True, False, True]
    assert [f"{each.off_share:+.1%}" for each in found] == ["+2.9%", "-8.3%", "+4.2%"]
    assert str(found[1]).endswith("NOT within 5%")
    assert len(compare(lte(one_way_delay_ms=0.0), Measured(0.1, 12e6, 12e6))) == 2


def test_a_delay_is_half_the_median_round_trip_less_the_bytes() -> None:
    # 64 bytes at 1.024 Mbps take 0.5 ms each way.
    profile = lte(uplink_bps=1.024e6, downlink_bps=1.024e6)
    assert one_way_delay_ms(profile, [0.071, 0.001, 0.9]) == pytest.approx(35.0)


def test_more_jitter_takes_more_pings() -> None:
    assert pings_for(lte()) == 31
    # pi / 2 * (5.5 / sqrt(6) / (0.015 * 12.5)) ** 2 = 225.3
    assert pings_for(NAMED["5g-nsa"]) == 226


def test_a_chunk_is_at_least_a_segment_and_at_most_64_kib() -> None:
    assert [relay.chunk_bytes(bps) for bps in (750e3, 12e6, 1e9)] == [1448, 3000, 65536]


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (["--link", "3g", "--to", "127.0.0.1:1"], "'3g' is no link profile"),
        (["--link", "lte", "--to", "127.0.0.1"], "'127.0.0.1' is no address"),
    ],
)
def test_a_relay_refuses_in_one_line(
    given: list[str],
    words: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(sys, "argv", ["relay", *given])
    assert relay.main() == UsageError.exit_code
    said = capsys.readouterr()
    assert words in said.err
    assert said.err.count("\n") == 1
    assert not said.out


def test_connections_of_their_own_links_draw_apart_and_the_same_again() -> None:
    link = Link(NAMED["lte"], seed=3)
    seen = [message_time_ns(link_of_connection(link, number).uplink, 0) for number in (0, 1, 0)]
    assert seen[0] == seen[2] != seen[1]
    assert link_of_connection(link, 0).uplink.free_at_ns == 0


def test_a_relay_tells_what_share_of_a_cpu_it_took(tmp_path: Path) -> None:
    file = tmp_path / "usage"
    assert usage.read_readings(file) == []
    file.write_text("10.0 1.0\n10.5 1.1\n11.0 1.5\n11.5 1.9\n12.0 2")
    readings = usage.read_readings(file)
    assert len(readings) == 4
    # From 10.5 to 11.5 s it used 0.8 s.
    assert usage.cpu_share(readings, 10.2, 11.9) == pytest.approx(0.8)
    assert usage.cpu_share(readings, 10.2, 13.9) is None
    assert usage.cpu_share(readings, 10.6, 11.4) is None
    usage.append_reading(tmp_path / "own")
    ((at_s, cpu_s),) = usage.read_readings(tmp_path / "own")
    assert at_s > 1e9
    assert cpu_s > 0


@pytest.mark.parametrize(
    ("url", "server", "crossing"),
    [
        ("http://edge-1:8000", "edge-1:8000", "http://127.0.0.1:5"),
        ("http://edge-1", "edge-1:80", "http://127.0.0.1:5"),
        ("grpc://[::1]:8001", "[::1]:8001", "grpc://127.0.0.1:5"),
        ("https://localhost:8443", "localhost:8443", "https://localhost:5"),
    ],
)
def test_requests_reach_a_server_through_its_relay(url: str, server: str, crossing: str) -> None:
    assert crossing_of.server_of(url) == server
    assert crossing_of.through(url, "127.0.0.1:5") == crossing


@pytest.mark.parametrize(
    ("url", "told"),
    [
        ("https://edge-1:8443", "its certificate would be checked against 127.0.0.1"),
        ("grpcs://10.0.0.2:8443", "its certificate would be checked against 127.0.0.1"),
        ("grpc://edge-1", "it names no port"),
    ],
)
def test_what_cannot_cross_a_relay_is_refused(url: str, told: str) -> None:
    with pytest.raises(UsageError, match=told):
        crossing_of.server_of(url)


def test_a_request_that_would_time_out_on_its_way_is_refused() -> None:
    """602,112 bytes at 750 kbps take 6.42 s, and the round trip 0.15 s."""
    profile = NAMED["slow-4g"]
    size_bytes = 3 * 224 * 224 * 4
    takes_s = size_bytes * 8 / 750e3 + 0.15
    assert crossing_of.request_time_s(profile, size_bytes) == pytest.approx(takes_s)
    crossing_of.require_in_time(profile, size_bytes, takes_s + 0.01)
    told = "602 kB takes 6.6 s over slow-4g, 6.4 s of them on its uplink, above --timeout 5"
    with pytest.raises(UsageError, match=told):
        crossing_of.require_in_time(profile, size_bytes, 5.0)


def test_a_link_is_recorded_with_the_source_of_every_value() -> None:
    found = record_of(NAMED["lte"], each_connection=False)
    assert found.sources["jitter_ms"].startswith(ASSUMPTION)
    assert found.facts["One-way delay"].startswith("35 ms (WebPageTest")
    assert found.facts["Outages"] == f"none ({ASSUMPTION})"
    text = text_of(found)
    assert text == (
        "lte: one-way delay 35 ms, jitter ± 5 ms, loss 0.00% of segments, uplink 12 Mbps, "
        "downlink 12 Mbps, outages none, shared by all connections"
    )
    own = record_of(replace(NAMED["lte"], outages=Outages(((2.0, 5.0),))), each_connection=True)
    assert text_of(own) != text
    assert own.facts["Outages"] == f"5 s at 2 s ({ASSUMPTION})"
    assert text_of(None) == "none"


@pytest.mark.parametrize(
    ("relay_share", "generator", "client_cpus", "told"),
    [
        (0.95, 0.01, 2, "the relay used 95% of a CPU"),
        (0.60, 0.40, 1, "the relay and the generator used 100% of the client's CPU together"),
        (0.60, 0.40, 2, ""),
        (0.50, 0.39, 1, ""),
        (None, 0.99, 1, ""),
    ],
)
def test_a_relay_without_the_cpu_that_it_needs_makes_a_window_its_own(
    relay_share: float | None, generator: float, client_cpus: int, told: str
) -> None:
    found = link_bound(relay_share, generator, client_cpus)
    assert found == (f"link-bound: {told}" if told else "")
    # Such a window says nothing of the load that the server keeps.
    assert not found or cause_of(found) == "beside"


def test_backends_behind_unlike_links_are_not_ranked() -> None:
    def behind(label: str, link: str | None) -> BackendRecord:
        facts = {} if link is None else {"link": link}
        return BackendRecord(label=label, facts=facts, parity=None, start_s=1.0)

    labels = ("onnxruntime", "fastapi", "triton")
    links = ("lte: 35 ms", "lte: 35 ms", None)
    records = {label: behind(label, link) for label, link in zip(labels, links, strict=True)}
    found = unlike_servers(labels, records)
    assert list(found) == ["triton"]
    assert "link: lte: 35 ms against none" in found["triton"]


def test_a_window_is_invalid_only_where_its_own_relay_was_the_limit(tmp_path: Path) -> None:
    """The relay idles for ten seconds, and then takes all of a CPU for ten."""
    seen = tmp_path / "usage"
    seen.write_text(
        "".join(f"{at} {max(0, at - 110)}\n" for at in np.arange(100, 120.1, 0.5).tolist())
    )
    window = {"window_started_unix_s": 101.0, "window_s": 6.0}
    trial, _ = made.trial("onnxruntime", 1, 1, made.spread(100), **window)
    assert trial.verdict == "VALID"
    link = RunningLink("127.0.0.1:5", seen)
    assert unless_link_bound(trial, link, 2) == trial
    later = trial.model_copy(update={"window_started_unix_s": 112.0})
    judged = unless_link_bound(later, link, 2)
    assert judged.verdict == "INVALID"
    assert judged.reasons == ("link-bound: the relay used 100% of a CPU",)
