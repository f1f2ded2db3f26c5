"""A decision as JUnit XML for continuous integration, and as Markdown for a pull request. Pure."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from collections.abc import Iterator

from loadtest.gate.decision import Decision, Row, Verdict, share
from loadtest.highest import point_name
from loadtest.rounding import four_digits

_NO_XML = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""What XML 1.0 cannot hold, not even escaped."""
_MARKUP = re.compile(r"[\\`*_{}\[\]()<>#+!|~@&$]")
_ELEMENTS: dict[Verdict, str] = {
    "regression": "failure",
    "invalid": "error",
    "inconclusive": "skipped",
}
_MARKS: dict[Verdict, str] = {
    "pass": "✅ pass",
    "regression": "❌ regression",
    "inconclusive": "❔ inconclusive",
    "invalid": "⛔ invalid",
}


def change_text(row: Row) -> str:
    """Such as ``-7.2%``; of the figure itself, whether more of it is better or not."""
    return "-" if row.change is None else f"{row.change.ratio - 1:+.1%}"


def interval_text(row: Row) -> str:
    change = row.change
    if change is None or change.low is None or change.high is None:
        return "-"
    return f"{change.low - 1:+.1%} to {change.high - 1:+.1%}"


def sentence(decision: Decision) -> str:
    """The verdict, and how many figures have which."""
    counts = ", ".join(f"{n} {verdict}" for verdict, n in decision.counts.items() if n)
    return (
        f"{decision.verdict}: {len(decision.rows)} compared at a limit of "
        f"{share(decision.rule.limit)} ({counts})"
    )


def junit(decision: Decision) -> str:
    """A ``testsuites`` document with one ``testcase`` per figure.

    A regression is a ``failure``, what could not be compared an ``error``, and what could not be
    told ``skipped``.
    """
    counts = decision.counts
    totals = {
        "tests": str(len(decision.rows)),
        "failures": str(counts["regression"]),
        "errors": str(counts["invalid"]),
        "skipped": str(counts["inconclusive"]),
        "time": f"{sum(row.window_s for row in decision.rows):.3f}",
    }
    root = ET.Element("testsuites", {"name": "infersweep gate", **totals})
    suite = ET.SubElement(root, "testsuite", {"name": "infersweep gate", **totals})
    properties = ET.SubElement(suite, "properties")
    for name, value in _properties(decision):
        ET.SubElement(properties, "property", {"name": name, "value": _for_xml(value)})
    for row in decision.rows:
        _case(suite, row, decision)
    ET.indent(root)
    return ET.tostring(root, encoding="unicode", xml_declaration=True) + "\n"


def _properties(decision: Decision) -> Iterator[tuple[str, str]]:
    yield "baseline", decision.before
    yield "candidate", decision.after
    yield "limit", share(decision.rule.limit)
    yield "confidence", share(decision.rule.confidence)
    yield from (("unlike", text) for text in decision.unlike)
    yield from (("note", text) for text in decision.notes)


def _case(suite: ET.Element, row: Row, decision: Decision) -> None:
    name = f"{row.measure.name} at {point_name(row.level, decision.level_name)}"
    case = ET.SubElement(
        suite,
        "testcase",
        {
            "classname": _for_xml(f"infersweep.{row.backend}"),
            "name": _for_xml(name),
            "time": f"{row.window_s:.3f}",
        },
    )
    if row.verdict in _ELEMENTS:
        told = {"message": _for_xml(row.why), "type": row.verdict}
        found = ET.SubElement(case, _ELEMENTS[row.verdict], told)
        if row.verdict != "inconclusive":
            found.text = _for_xml(_figures(row))
    ET.SubElement(case, "system-out").text = _for_xml(f"{row.why}\n{_figures(row)}")


def _figures(row: Row) -> str:
    return (
        f"{row.measure.name}: {four_digits(row.before)} to {four_digits(row.after)} "
        f"{row.measure.unit}, {change_text(row)} ({interval_text(row)})"
    )


def _for_xml(text: str) -> str:
    return _NO_XML.sub("\ufffd", text)


def markdown(decision: Decision) -> str:
    """A heading, a table with a row per figure, and what must be known beside it."""
    return "\n".join(_markdown(decision)) + "\n"


def _markdown(decision: Decision) -> Iterator[str]:
    yield f"### {_MARKS[decision.verdict]} (infersweep gate)"
    yield ""
    yield (
        f"{_text(decision.after)} against the baseline {_text(decision.before)}: "
        f"{_text(sentence(decision))}."
    )
    yield ""
    if decision.unlike:
        yield "**Compared in spite of unlike conditions:**"
        yield ""
        yield from (f"- {_text(text)}" for text in decision.unlike)
        yield ""
    yield (
        "| backend | point | metric | baseline | candidate | change | "
        f"{share(decision.rule.confidence)} interval | verdict | why |"
    )
    yield "|---|--:|---|--:|--:|--:|--:|---|---|"
    for row in decision.rows:
        cells = (
            _text(row.backend),
            _text(point_name(row.level, decision.level_name)),
            _text(f"{row.measure.name}, {row.measure.unit}"),
            four_digits(row.before),
            four_digits(row.after),
            change_text(row),
            interval_text(row),
            _MARKS[row.verdict],
            _text(row.why),
        )
        yield f"| {' | '.join(cells)} |"
    if decision.notes:
        yield ""
        yield from (f"- {_text(text)}" for text in decision.notes)


def _text(text: str) -> str:
    """Nothing in it is markup, a mention, a link or the end of a cell."""
    plain = " ".join(text.split())
    return _MARKUP.sub(lambda found: f"&#{ord(found.group())};", plain)
