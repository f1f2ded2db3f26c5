"""Everything that does not count, with its reasons; page, terminal and Markdown say the same."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from loadtest.results import Summary


class Verdict(NamedTuple):
    """Attributes: ``kind`` is the class of the badge, ``label`` its word."""

    subject: str
    kind: str
    label: str
    why: str


def verdicts_of(summary: Summary) -> tuple[Verdict, ...]:
    """Backends left out or not ranked, INVALID points; of a search what gave no answer."""
    return (*_backends(summary), *(_probes(summary) if summary.searches else _points(summary)))


def _backends(summary: Summary) -> Iterator[Verdict]:
    for backend in summary.backends:
        if backend.excluded:
            yield Verdict(backend.label, "none", "Left out", backend.excluded)
    for label, why in summary.ranking.unranked.items():
        if all(b.label != label or b.excluded != why for b in summary.backends):
            yield Verdict(label, "none", "Not ranked", why)


def _points(summary: Summary) -> Iterator[Verdict]:
    unit = summary.manifest.settings.level_name
    for backend in summary.backends:
        for point in backend.points:
            if point.verdict == "INVALID":
                told = f"{backend.label} at {point.level:g} {unit}"
                yield Verdict(told, "INVALID", "INVALID", "; ".join(point.reasons))


def _probes(summary: Summary) -> Iterator[Verdict]:
    for search in summary.searches:
        name = f"{search.backend}, search {search.repeat}"
        told_already = search.answer.sentence == summary.ranking.unranked.get(search.backend)
        if search.answer.kind in ("open", "not reachable") and not told_already:
            label = "Not reachable" if search.answer.kind == "not reachable" else "No full answer"
            yield Verdict(name, "none", label, search.answer.sentence)
        for probe in search.probes:
            if probe.verdict == "void":
                told = f"{name}, probe {probe.number} at {probe.rate_rps:,g} requests/s"
                yield Verdict(told, "open", "Void", probe.why)
