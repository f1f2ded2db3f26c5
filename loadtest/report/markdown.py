"""The report in short, as Markdown for a pull request; what users wrote is escaped. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from loadtest.report import numbers
from loadtest.report.answer import answer_of
from loadtest.report.footprint import FootprintRow, footprints
from loadtest.report.frames import frames_of
from loadtest.report.searching import searched
from loadtest.report.verdicts import verdicts_of
from loadtest.results import Rank, Summary

_SPECIAL = re.compile(r"[\\`*_\[\]<>|~&#$]|//|@|\s+")
_RIGHT, _LEFT = "--:", "---"


def markdown(summary: Summary) -> str:
    """Answer, ranking, what does not count, machine and command; ends with a newline."""
    manifest = summary.manifest
    title = f"### infersweep: {escape(manifest.settings.model)}"
    answer = f"**{escape(answer_of(summary).label)}.** {escape(summary.ranking.sentence)}"
    parts = [
        title,
        answer,
        *_warnings(summary),
        *_ranking(summary),
        *_searches(summary),
        *_frames(summary),
        *_verdicts(summary),
        _machine(summary),
        fenced(manifest.command),
        f"Model SHA-256 `{manifest.model_sha256}`. Everything else is in `report.html`.",
    ]
    return "\n\n".join(parts) + "\n"


def escape(text: object) -> str:
    """Plain text in one line that no Markdown or HTML comes out of, and no link or mention."""
    return _SPECIAL.sub(_entity, str(text).strip())


def _entity(found: re.Match[str]) -> str:
    text = found[0]
    if text.isspace():
        return " "
    # A mention is looked for in the text that comes out, so it must be broken there.
    return "&#64;&#8203;" if text == "@" else "".join(f"&#{ord(char)};" for char in text)


def fenced(text: str) -> str:
    """A block of code, in a fence longer than any in ``text``."""
    longest = max((len(run) for run in re.findall("`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}sh\n{text}\n{fence}"


def _warnings(summary: Summary) -> Iterator[str]:
    if not summary.complete:
        of = "" if summary.searches else f" of {summary.planned_trials}"
        yield f"**Incomplete:** {summary.finished_trials}{of} windows have finished."
    settings = summary.manifest.settings
    shared = set(settings.server_cpus) & set(settings.client_cpus)
    if shared:
        yield f"**Server and load generator shared CPUs** ({numbers.cpus(shared)})."


def _ranking(summary: Summary) -> Iterator[str]:
    if not summary.ranking.rows:
        return
    costs = {row.backend: row for row in footprints(summary)}
    unit = "requests/s" if summary.searches else summary.manifest.settings.level_name
    heads = (
        *("#", "backend", "inferences/s", "repeats", "against the first (95%)", "verdict"),
        *("failed", "p99 (ms)", f"at ({escape(unit)})", "memory", "ready after"),
    )
    rows = [
        _row(place, row, costs.get(row.backend))
        for place, row in enumerate(summary.ranking.rows, 1)
    ]
    yield table(heads, rows, left=(1, 5))


def _row(place: int, row: Rank, cost: FootprintRow | None) -> Sequence[str]:
    return (
        str(place),
        escape(row.backend),
        numbers.rate(row.inferences_per_s),
        ", ".join(map(numbers.rate, row.repeats)) or numbers.MISSING,
        "first" if place == 1 else numbers.ratio(row.against_first),
        row.against_first.verdict if row.against_first else "",
        numbers.failed(row.failed_share),
        numbers.milliseconds(row.p99_ms),
        f"{row.level:.4g}",
        cost.resident if cost else numbers.MISSING,
        cost.ready if cost else numbers.MISSING,
    )


def _searches(summary: Summary) -> Iterator[str]:
    rows = [
        (
            escape(one.backend),
            str(len(one.searches)),
            numbers.rate(one.median_rps),
            numbers.rate_range(one.range_rps),
            str(one.probes),
        )
        for one in searched(summary)
    ]
    if rows:
        asked = escape(" and ".join(summary.objectives))
        heads = ("backend", "searches", f"requests/s within {asked}", "range", "probes")
        yield table(heads, rows, left=(0,))


def _frames(summary: Summary) -> Iterator[str]:
    rows = [
        (
            *(escape(one.backend), f"{one.level:.4g}", escape(one.rule), one.due),
            *(one.together.delivered, one.together.age_p50, one.together.age_p99),
            *(one.together.missed, one.together.dropped, one.together.longest_gap),
        )
        for one in frames_of(summary)
    ]
    if rows:
        unit = escape(summary.manifest.settings.level_name)
        heads = (
            *("backend", unit, "policy", "frames/s due", "delivered/s", "age p50 (ms)"),
            *("age p99 (ms)", "missed", "dropped", "longest gap (ms)"),
        )
        yield table(heads, rows, left=(0, 2))


def _verdicts(summary: Summary) -> Iterator[str]:
    found = verdicts_of(summary)
    if found:
        lines = [f"- **{escape(v.subject)}**, {v.label}: {escape(v.why)}" for v in found]
        yield "\n".join(["What does not count, and why:", "", *lines])


def _machine(summary: Summary) -> str:
    manifest = summary.manifest
    machine, settings = manifest.machine, manifest.settings
    gpus = ", ".join(machine.gpus) or "no GPU"
    return escape(
        f"{machine.cpu_model}, {machine.usable_cpus} CPUs "
        f"(server {numbers.cpus(settings.server_cpus)}, "
        f"generator {numbers.cpus(settings.client_cpus)}), {gpus}, "
        f"{numbers.size(machine.memory_bytes)}, {machine.os}; "
        f"infersweep {manifest.infersweep_version}, commit {manifest.commit or 'unknown'}; "
        f"{manifest.created[:16].replace('T', ' ')}"
    )


def table(heads: Sequence[str], rows: Iterable[Sequence[str]], *, left: Sequence[int] = ()) -> str:
    """Cells are Markdown already; columns in ``left`` hold words, the others numbers."""
    rules = [_LEFT if place in left else _RIGHT for place in range(len(heads))]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (heads, rules, *rows))
