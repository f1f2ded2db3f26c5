"""How sure the answer is, in one word for the badge. Pure."""

from __future__ import annotations

from typing import NamedTuple

from loadtest.results import Summary
from loadtest.searched import AnswerKind


class Answer(NamedTuple):
    """A word for the badge and the class that colours it."""

    kind: str
    label: str


SEARCHED: dict[AnswerKind, Answer] = {
    "found": Answer("winner", "Found"),
    "at least": Answer("winner", "At least"),
    "not reachable": Answer("none", "Not reachable"),
    "open": Answer("open", "No full answer"),
}


def answer_of(summary: Summary) -> Answer:
    """Winner, no significant difference, too few repeats, or why there is none of these."""
    ranking = summary.ranking
    if ranking.winner is not None:
        return Answer("winner", f"Winner: {ranking.winner}")
    if len(summary.backends) == 1 and summary.searches:
        return SEARCHED[_middle(summary)]
    if not ranking.rows:
        return Answer("none", "No answer")
    if len(ranking.rows) == 1:
        return Answer("open", "Nothing to compare with")
    verdicts = {row.against_first.verdict for row in ranking.rows if row.against_first}
    if "no significant difference" in verdicts:
        return Answer("open", "No significant difference")
    return Answer("open", "Too few repeats" if "too few repeats" in verdicts else "Undecided")


def _middle(summary: Summary) -> AnswerKind:
    """Of one backend's searches the answer that most of them have, the first of equals."""
    kinds = [search.answer.kind for search in summary.searches]
    return max(kinds, key=kinds.count)
