"""Every ``config.pbtxt`` is checked before a server starts: file, line, what is wrong, the mend."""

from __future__ import annotations

from pathlib import Path

import pytest

from loadtest.cli.models import lint as command
from serving.errors import ModelError
from serving.linting import Finding, lint
from serving.linting.positions import positions
from serving.models.repository import DEFAULT_ROOT
from serving.models.zoo import ENTRIES
from tests.broken_configs import BROKEN, Broken, write_all


@pytest.fixture(scope="module")
def findings(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Finding]]:
    """By model, of a repository with every broken configuration."""
    root = tmp_path_factory.mktemp("broken")
    write_all(root)
    found: dict[str, list[Finding]] = {}
    for finding in lint(root):
        found.setdefault(finding.file.parent.name, []).append(finding)
    return found


@pytest.mark.parametrize("case", BROKEN, ids=lambda case: case.name)
def test_a_fault_is_found_on_its_line(case: Broken, findings: dict[str, list[Finding]]) -> None:
    told = [found for found in findings[case.name] if case.told in f"{found.what}. {found.hint}"]
    assert [(found.line, found.severity) for found in told[:1]] == [(case.line, case.severity)]
    assert any(found.severity == "error" for found in findings[case.name]) != case.loads


def test_what_is_right_is_left_in_peace(findings: dict[str, list[Finding]]) -> None:
    assert not {"first", "second", "chain"} & findings.keys()
    shipped = [found for found in lint(DEFAULT_ROOT) if found.file.parent.name in ENTRIES]
    assert shipped == []


def test_the_command_fails_for_errors_only(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_all(tmp_path)
    assert command.run(tmp_path) == ModelError.exit_code
    assert f"{tmp_path}/type_bytes/config.pbtxt:5: error: " in capsys.readouterr().out
    for case in BROKEN:
        if not case.loads:
            (tmp_path / case.name / "config.pbtxt").unlink()
    assert command.run(tmp_path) == 0
    assert "0 errors" in capsys.readouterr().out


def test_fields_are_located_whatever_the_layout() -> None:
    root = positions(
        '# head\nname: \'a\' "b"; input: <\n name: "[,}#" # not a [\n dims: [1,\n2] dims: 3 >\n'
        "input [ {\n} ,\n{ name: 'second' } ]"
    )
    assert root.find("name").text == "ab"
    assert root.find("input", 0, "name").text == "[,}#"
    assert [root.find("input", 0, "dims", at).line for at in range(3)] == [4, 5, 5]
    assert [root.find("input", at).line for at in range(3)] == [2, 6, 8]
    assert root.find("input", 3).line == root.find("nowhere").line == 1
    assert root.find("input", 1, "name", 7).line == 6
