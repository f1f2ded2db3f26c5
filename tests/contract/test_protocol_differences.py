"""The list of differences is used, and told to the user."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

from serving.backends.registry import BACKENDS
from tests.contract.differences import DIFFERENCES, difference

ROOT = Path(__file__).parents[2]
_ITEM = re.compile(r"- `(\w+)` (.+?)\.(?=\n- |\n*\Z)", re.DOTALL)


def told() -> set[tuple[str, str]]:
    """The items below the heading Differences: backend and reason, line breaks undone."""
    text = (ROOT / "docs" / "backends.md").read_text(encoding="utf-8")
    section = text.split("\n## Differences\n")[1].split("\n## ")[0]
    return {(backend, " ".join(reason.split())) for backend, reason in _ITEM.findall(section)}


def test_the_documentation_lists_each_and_no_other() -> None:
    assert told() == {(entry.backend, entry.reason) for entry in DIFFERENCES}


def test_each_case_of_a_backend_is_listed_once_and_is_the_name_of_a_test() -> None:
    cases = [(entry.backend, case) for entry in DIFFERENCES for case in entry.cases]
    assert [case for case, count in Counter(cases).items() if count > 1] == []
    assert {backend for backend, _ in cases} <= set(BACKENDS)
    folder = Path(__file__).parent
    source = "".join(
        file.read_text() for file in folder.glob("*.py") if file.name != "differences.py"
    )
    assert [case for _, case in cases if f'"{case}"' not in source] == []


def test_what_is_not_listed_is_no_difference() -> None:
    assert difference("fastapi", "grpc") is not None
    assert difference("triton", "grpc") is None
    assert difference("onnxruntime", "not JSON") is None
