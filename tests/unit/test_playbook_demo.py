"""The tables of the demo find their place in the documentation."""

from __future__ import annotations

from pathlib import Path

from benchmarks.playbook_demo import write_docs


def test_tables_replace_what_stood_between_the_marks(tmp_path: Path) -> None:
    page = tmp_path / "playbook.md"
    before, after = "before\n<!-- measured: begin -->\n", "\n<!-- measured: end -->\nafter\n"
    page.write_text(before + "old" + after)
    for tables in (["one", "two"], ["three"]):
        write_docs(page, tables)
        assert page.read_text() == before + "\n".join(tables) + after
