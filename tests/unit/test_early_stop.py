"""A window that is ended early was lost for certain, and one that is not might have been met."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loadtest.analysis import samples_of
from loadtest.confidence import bounding_ranks, sample_floor
from loadtest.early_stop import Outlook, allowed_over, due_between, outlook_of
from loadtest.engine.base import Records
from loadtest.recorder import Recorder
from loadtest.results import Settings
from loadtest.schedule import Times, constant
from loadtest.trial import StopRule
from loadtest.trials import PlannedTrial, trial_of
from tests import sample_trials as made

MS, SECOND = made.MS, made.SECOND
LIMIT_NS = 50 * MS
ALLOWED = 3
"""Of 100 requests beyond p90: 3 or fewer lie there in 0.78% of all cases, 4 or fewer in 2.4%."""


def rule(quantile: float = 0.9, failures: float = 0.0) -> StopRule:
    return StopRule(percentiles=((quantile, LIMIT_NS),), failures=failures)


def moments(count: int, gap_ns: int = 10 * MS) -> Times:
    return np.arange(count, dtype=np.int64) * gap_ns


def ended(due_ns: Times, took_ns: Sequence[int], outcome: str = "ok") -> Records:
    return made.requests(due_ns.tolist(), took_ns, outcome=outcome)


@pytest.mark.parametrize("quantile", [0.5, 0.9, 0.95, 0.99, 0.999])
def test_what_a_window_allows_is_what_its_upper_bound_keeps(quantile: float) -> None:
    """Just that many slow requests leave the bound below the limit, and one more does not."""
    floor = sample_floor(quantile)
    for count in (floor, floor + 1, 2 * floor, 5 * floor + 3):
        allowed = allowed_over(count, quantile)
        for over, kept in ((allowed, True), (allowed + 1, False)):
            recorder = Recorder(0, SECOND)
            took = [10 * MS] * (count - over) + [90 * MS] * over
            recorder.add(ended(moments(count, 1000), took))
            found = samples_of(recorder.finish().response_time).percentile(quantile)
            assert found is not None
            assert (found.high is not None and found.high <= LIMIT_NS) is kept


def test_requests_that_come_together_never_allow_more() -> None:
    """Bounds of fewer effective samples are no lower, so a window that is lost stays lost."""
    for quantile in (0.5, 0.9, 0.99):
        floor = sample_floor(quantile)
        for count in (floor, 2 * floor + 1, 4 * floor):
            allowed = allowed_over(count, quantile)
            for inflation in np.linspace(1, 8, 141):
                _, high = bounding_ranks(count, quantile, float(inflation))
                assert high is None or count - high <= allowed


def test_more_requests_never_allow_fewer() -> None:
    """Failures are no part of a percentile: it is then one of fewer requests."""
    for quantile in (0.9, 0.99):
        allowed = [allowed_over(n, quantile) for n in range(sample_floor(quantile), 1500)]
        assert allowed == sorted(allowed)


def test_a_window_too_small_for_any_bound_is_never_lost() -> None:
    outlook = Outlook(rule(), moments(43))
    outlook.add(ended(moments(43), [SECOND] * 43))
    assert outlook.lost(10 * SECOND) is None


@dataclass(frozen=True)
class Drawn:
    """60 to 200 requests, 10 ms apart; about ``slow`` of them take too long. One looks at them
    at ``now_ns``.
    """

    count: int
    slow: float
    seed: int
    now_ns: int

    @property
    def due_ns(self) -> Times:
        return moments(self.count)

    @property
    def fates(self) -> list[tuple[str, int]]:
        """Outcome and response time of each."""
        rng = np.random.default_rng(self.seed)
        names, shares = ("ok", "timeout", "server_fault_5xx", "not_sent"), (0.94, 0.02, 0.02, 0.02)
        kinds = rng.choice(names, self.count, p=shares).tolist()
        slow = rng.random(self.count) < self.slow
        return [
            (kind, 200 * MS if kind == "timeout" else 80 * MS if late else 20 * MS)
            for kind, late in zip(kinds, slow, strict=True)
        ]

    def ended_by(self, now_ns: int) -> list[Records]:
        due_ns = self.due_ns.tolist()
        return [
            made.requests([due], [took], outcome=kind)
            for due, (kind, took) in zip(due_ns, self.fates, strict=True)
            if due + took <= now_ns
        ]

    def met_in_the_end(self) -> bool:
        """Whether p90 keeps its limit and no more requests failed than may."""
        recorder = Recorder(0, self.count * 10 * MS)
        recorder.add(np.concatenate(self.ended_by(SECOND * 60)))
        measured = recorder.finish()
        samples = samples_of(measured.response_time, measured.outcomes["not_sent"])
        found, failed = samples.percentile(0.9), measured.outcomes["server_fault_5xx"]
        kept = found is not None and found.high is not None and found.high <= LIMIT_NS
        return kept and failed <= int(0.02 * self.count)


drawn = st.builds(
    Drawn,
    count=st.integers(60, 200),
    slow=st.floats(0.0, 0.3),
    seed=st.integers(0, 2**32 - 1),
    now_ns=st.integers(0, 2 * SECOND),
)


@settings(deadline=None)
@given(drawn)
def test_a_window_that_is_lost_is_never_met_in_the_end(drawn: Drawn) -> None:
    outlook = Outlook(rule(failures=0.02), drawn.due_ns)
    for records in drawn.ended_by(drawn.now_ns):
        outlook.add(records)
    if outlook.lost(drawn.now_ns) is not None:
        assert not drawn.met_in_the_end()


@settings(deadline=None)
@given(drawn)
def test_a_window_that_is_not_lost_could_still_be_met(drawn: Drawn) -> None:
    """Where nothing fails: all that is not over the limit yet may be answered in time."""
    took_ns = [took for _, took in drawn.fates]
    outlook = Outlook(rule(), drawn.due_ns)
    certain = 0
    for due, took in zip(drawn.due_ns.tolist(), took_ns, strict=True):
        if due + took <= drawn.now_ns:
            outlook.add(made.requests([due], [took]))
            certain += took > LIMIT_NS
        else:
            certain += due + LIMIT_NS <= drawn.now_ns
    lost = certain > allowed_over(drawn.count, 0.9)
    assert (outlook.lost(drawn.now_ns) is not None) is lost


def test_requests_that_still_wait_count_once_they_are_older_than_the_limit() -> None:
    """100 requests, 10 ms apart, of which ``ALLOWED`` may be slow. Nothing is ever answered."""
    assert allowed_over(100, 0.9) == ALLOWED
    outlook = Outlook(rule(), moments(100))
    assert outlook.lost(2 * 10 * MS + LIMIT_NS) is None
    told = outlook.lost(3 * 10 * MS + LIMIT_NS)
    assert told == (
        "0 requests took longer than 50 ms and 4 wait longer; p90 allows 3 of 100 planned"
    )


def test_a_backlog_is_more_that_waits_too_long_than_comes_within_the_limit() -> None:
    """Within 50 ms five come. Nothing is answered: after 99 ms five wait too long, then six."""
    outlook = Outlook(rule(), moments(100))
    assert not outlook.backlog(99 * MS)
    assert outlook.backlog(100 * MS)


def test_what_was_slow_and_is_over_is_no_backlog() -> None:
    outlook = Outlook(rule(), moments(100))
    outlook.add(ended(moments(20), [60 * MS] * 20))
    now_ns = 19 * 10 * MS + 60 * MS
    assert outlook.lost(now_ns) is not None
    assert not outlook.backlog(now_ns)


def test_what_may_fail_may_be_among_those_that_wait() -> None:
    """Two may fail, so five that wait are not lost and six are."""
    outlook = Outlook(rule(failures=0.02), moments(100))
    assert outlook.lost(4 * 10 * MS + LIMIT_NS) is None
    assert outlook.lost(5 * 10 * MS + LIMIT_NS) is not None


def test_more_failures_than_may_be_lose_the_window() -> None:
    outlook = Outlook(rule(failures=0.02), moments(100))
    outlook.add(ended(moments(2), [1 * MS] * 2, "server_fault_5xx"))
    assert outlook.lost(20 * MS) is None
    outlook.add(ended(moments(3)[2:], [1 * MS], "connection_error"))
    assert outlook.lost(20 * MS) == "3 of 100 planned requests failed, 2 may"


def test_frames_that_were_dropped_neither_failed_nor_wait() -> None:
    outlook = Outlook(rule(), moments(100))
    outlook.add(ended(moments(100), [80 * MS] * 100, "dropped"))
    assert outlook.lost(2 * SECOND) is None
    assert not outlook.backlog(SECOND)


def test_requests_of_the_warm_up_and_beyond_the_end_do_not_count() -> None:
    outlook = Outlook(rule(), moments(100) + SECOND)
    outlook.add(ended(moments(50), [2 * SECOND] * 50))
    outlook.add(ended(moments(50) + 3 * SECOND, [2 * SECOND] * 50))
    assert outlook.lost(SECOND) is None


def test_arrivals_of_one_moment_are_all_counted() -> None:
    due_ns = np.zeros(100, np.int64)
    outlook = Outlook(rule(), due_ns)
    outlook.add(ended(due_ns[:96], [1 * MS] * 96))
    assert "4 wait longer" in str(outlook.lost(2 * LIMIT_NS))
    outlook.add(ended(due_ns[:1], [1 * MS]))
    assert outlook.lost(2 * LIMIT_NS) is None


def test_the_first_percentile_that_is_lost_is_named() -> None:
    both = StopRule(percentiles=((0.5, 200 * MS), (0.9, LIMIT_NS)), failures=0.0)
    outlook = Outlook(both, moments(100))
    assert "p90 allows" in str(outlook.lost(200 * MS))


def test_the_windows_part_is_cut_out_of_the_schedule() -> None:
    """A request every 10 ms from 1 s on; a window from 1.5 s to 2.5 s has the 50th to the 149th."""
    outlook = outlook_of(rule(), constant(100), SECOND, (1500 * MS, 2500 * MS))
    outlook.add(ended(moments(96) + 1500 * MS, [1 * MS] * 96))
    last_ns = 1500 * MS + 99 * 10 * MS
    assert outlook.lost(last_ns - 1 + LIMIT_NS) is None
    assert "4 wait longer; p90 allows 3 of 100 planned" in str(outlook.lost(last_ns + LIMIT_NS))
    assert due_between(constant(100), 15 * MS, 45 * MS).tolist() == [20 * MS, 30 * MS, 40 * MS]
    assert len(due_between(iter(()), 0, SECOND)) == 0


def test_a_window_that_was_ended_early_is_not_invalid_for_being_short() -> None:
    """Three answers and a thousand requests that no connection was free for: the server's doing."""
    short = made.output([90 * MS] * 3, window_s=0.4)
    outcomes = {**short.outcomes, "not_sent": 1000}
    asked: Settings = made.settings(scenario="server", levels=(100,))

    def judged(cut: str | None) -> tuple[str, tuple[str, ...], str | None]:
        output = short.model_copy(update={"outcomes": outcomes, "cut": cut, "level": 100.0})
        trial, _ = trial_of(
            PlannedTrial("null", 100.0, 1),
            output,
            asked,
            client_cpus=1,
            server_cpus=1,
            server_ended=None,
            ceiling_rps=None,
        )
        return trial.verdict, trial.notes, trial.cut

    verdict, notes, cut = judged("9 wait longer")
    assert verdict == "VALID"
    assert cut == "9 wait longer"
    assert "ended after 0.4 s: 9 wait longer" in notes
    assert judged(None)[0] == "INVALID"
