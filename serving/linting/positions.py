"""Where in a ``config.pbtxt`` each field stands: protobuf's own parser keeps no lines.

The grammar is that of protobuf's text format (https://protobuf.dev/reference/protobuf/textformat-spec).
Only a text that protobuf has accepted is read, so nothing is checked here again.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

_TOKEN = re.compile(
    r"""\s+ | \#[^\n]* | (?P<token> "(?:\\.|[^"\\])*" | '(?:\\.|[^'\\])*' | [{}<>\[\]:,;]
    | [^\s{}<>\[\]:,;"'\#]+ )""",
    re.VERBOSE,
)
_CLOSING = {"{": "}", "<": ">"}
_SEPARATORS = (",", ";")
_QUOTES = ('"', "'")


@dataclass(frozen=True)
class Node:
    """A field's value.

    Attributes:
        line: where the field's name stands, or in a list its own first line.
        text: of a plain value, without quotes; empty for one with fields inside.
        fields: by name, each in the order of the file.
    """

    line: int
    text: str = ""
    fields: dict[str, list[Node]] = field(default_factory=dict)

    def find(self, *steps: str | int) -> Node:
        """The field that ``steps`` lead to, or the last one on the way that is there.

        A step is a field's name, and may be followed by the number of the one among several.
        """
        found, at = self, 0
        while at < len(steps):
            name = steps[at]
            numbered = at + 1 < len(steps) and isinstance(steps[at + 1], int)
            index = steps[at + 1] if numbered else 0
            nodes = found.fields.get(str(name), [])
            if not isinstance(index, int) or index >= len(nodes):
                break
            found, at = nodes[index], at + (2 if numbered else 1)
        return found


@dataclass
class _Tokens:
    """The tokens of a text with their lines, one of them next."""

    tokens: list[tuple[str, int]]
    at: int = 0

    @property
    def next(self) -> str:
        return self.tokens[self.at][0] if self.at < len(self.tokens) else ""

    @property
    def line(self) -> int:
        return self.tokens[min(self.at, len(self.tokens) - 1)][1] if self.tokens else 1

    def take(self) -> str:
        self.at += 1
        return self.tokens[self.at - 1][0]

    def skip(self, *wanted: str) -> None:
        if self.next in wanted:
            self.at += 1


def positions(text: str) -> Node:
    """The fields of a whole file."""
    tokens = _Tokens(list(_tokens(text)))
    return Node(1, fields=_fields(tokens, ""))


def _tokens(text: str) -> Iterator[tuple[str, int]]:
    line = 1
    for found in _TOKEN.finditer(text):
        if found["token"]:
            yield found["token"], line
        line += found[0].count("\n")


def _fields(tokens: _Tokens, closing: str) -> dict[str, list[Node]]:
    fields: dict[str, list[Node]] = {}
    while tokens.next not in (closing, ""):
        line, name = tokens.line, tokens.take()
        tokens.skip(":")
        fields.setdefault(name, []).extend(_values(tokens, line))
        tokens.skip(*_SEPARATORS)
    tokens.skip(closing)
    return fields


def _values(tokens: _Tokens, line: int) -> Iterator[Node]:
    """One value, or all of a list; ``line`` is that of the field's name."""
    if tokens.next == "[":
        tokens.take()
        while tokens.next != "]":
            yield from _values(tokens, tokens.line)
            tokens.skip(",")
        tokens.take()
    elif tokens.next in _CLOSING:
        yield Node(line, fields=_fields(tokens, _CLOSING[tokens.take()]))
    else:
        text = tokens.take()
        # Texts that stand side by side are one.
        while text[0] in _QUOTES and tokens.next[:1] in _QUOTES:
            text = text[:-1] + tokens.take()[1:]
        yield Node(line, text.strip("".join(_QUOTES)))
