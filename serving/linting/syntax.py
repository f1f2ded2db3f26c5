"""Is it text that protobuf reads? If not: on which line, and what was meant."""

from __future__ import annotations

import difflib
import re

from google.protobuf import descriptor_pool, text_format
from tritonclient.grpc import model_config_pb2 as schema

from serving.linting.document import Document, Finding
from serving.linting.positions import positions
from serving.models.repository import Model

_TRAILING_COMMA = re.compile(r",(?:\s|#[^\n]*)*\Z")
_NO_FIELD = re.compile(r'Message type "([\w.]+)" has no field named "(\w+)"')
_NO_VALUE = re.compile(r'Enum type "([\w.]+)" has no value named (\S+)')
_PREFIX = re.compile(r"^\d+:\d+ : (?:'.*': )?", re.DOTALL)


def read_document(model: Model) -> Document | Finding:
    """The file, or why it cannot be read."""
    file = model.folder / "config.pbtxt"
    try:
        text = file.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        line = file.read_bytes()[: error.start].count(b"\n") + 1
        return Finding(file, line, "error", "it is no text in UTF-8", "Save it as UTF-8.")
    try:
        message = text_format.Parse(text, schema.ModelConfig())
    except text_format.ParseError as error:
        return _fault(model, text, error)
    return Document(model, message, positions(text))


def _fault(model: Model, text: str, error: text_format.ParseError) -> Finding:
    file = model.folder / "config.pbtxt"
    line, column = error.GetLine() or 1, error.GetColumn() or 1
    lines = text.splitlines(keepends=True)
    before = "".join(lines[: line - 1]) + "".join(lines[line - 1 : line])[: column - 1]
    comma = _TRAILING_COMMA.search(before)
    closing = text[len(before) : len(before) + 1] in ("]", "")
    if comma and closing:
        line = before[: comma.start()].count("\n") + 1
        return Finding(
            file, line, "error", "a comma stands before the end of a list", "Take it out."
        )
    what = _PREFIX.sub("", str(error)).strip().rstrip(".")
    return Finding(file, line, "error", what, _hint(what))


def _hint(what: str) -> str:
    unknown = _NO_FIELD.search(what)
    if unknown:
        fields = descriptor_pool.Default().FindMessageTypeByName(unknown[1]).fields_by_name
        return _nearest(unknown[2], list(fields))
    value = _NO_VALUE.search(what)
    if value:
        names = list(descriptor_pool.Default().FindEnumTypeByName(value[1]).values_by_name)
        bare = value[2].strip("\"'")
        if bare in names:
            return f"Write {bare} without quotes."
        if bare == "TYPE_BYTES":
            return "Text and bytes are TYPE_STRING here."
        return _nearest(bare, names)
    return "Mend that line; the format is protobuf's text format."


def _nearest(word: str, known: list[str]) -> str:
    near = difflib.get_close_matches(word, known, n=1, cutoff=0.5)
    return f"Did you mean {near[0]}?" if near else f"Known: {', '.join(sorted(known))}."
