"""Users' models, odd as they are: each is added as it should be, or refused with the reason."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from serving.importing import add
from serving.models.repository import Model
from serving.models.samples import samples_for
from serving.rows import equal_within
from serving.session import open_session
from tests.odd_accepted import ACCEPTED, REPEATABLE
from tests.odd_models import Accepted, Odd, Refused
from tests.odd_refused import REFUSED


@pytest.fixture
def given(tmp_path: Path) -> Path:
    """Where the user's files lie."""
    folder = tmp_path / "given"
    folder.mkdir()
    return folder


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A repository that does not exist yet."""
    return tmp_path / "repository"


def named(case: Odd) -> str:
    return case.name


def test_there_are_many() -> None:
    assert len({case.name for case in (*ACCEPTED, *REFUSED)}) == len(ACCEPTED) + len(REFUSED) > 60


@pytest.mark.parametrize("case", ACCEPTED, ids=named)
def test_a_model_is_added_with_the_right_configuration(
    case: Accepted, given: Path, root: Path
) -> None:
    added = add(case.request(given), root)
    config = Model(root, case.name).config
    assert config.max_batch_size == case.batch
    assert tuple(spec.dims for spec in (*config.inputs, *config.outputs)) == case.dims
    assert (config.dynamic_batching is not None) == (case.batch > 1)
    assert (config.instances, config.intra_op_threads, config.inter_op_threads) == (1, 1, 1)
    text = (root / case.name / "config.pbtxt").read_text()
    assert f"max_batch_size: {case.batch}" in text
    assert "kind: KIND_CPU" in text
    assert re.search(case.told, "\n".join(added.remarks))
    assert [path.name for path in root.iterdir()] == [case.name]
    assert not any(path.is_symlink() for path in root.rglob("*"))


@pytest.mark.parametrize("case", REPEATABLE, ids=named)
def test_an_added_model_answers_as_the_users_own_file(
    case: Accepted, given: Path, root: Path
) -> None:
    request = case.request(given)
    model = add(request, root).model
    # The same configuration over the user's own files: only the graph differs.
    theirs = Model(given.parent / "theirs", case.name)
    theirs.folder.mkdir(parents=True)
    (theirs.folder / "config.pbtxt").write_text((model.folder / "config.pbtxt").read_text())
    (theirs.folder / "1").symlink_to(given, target_is_directory=True)
    if request.source.path.name != "model.onnx":
        request.source.path.rename(given / "model.onnx")
    ours, reference = open_session(model), open_session(theirs)
    for sample in samples_for(model):
        answers, wanted = ours.run(sample.inputs), reference.run(sample.inputs)
        assert answers.keys() == wanted.keys()
        for name, array in answers.items():
            equal, difference = equal_within(array, wanted[name])
            assert equal, (name, difference)


@pytest.mark.parametrize("case", REFUSED, ids=named)
def test_a_model_is_refused_with_the_reason_and_leaves_nothing(
    case: Refused, given: Path, root: Path
) -> None:
    with pytest.raises(case.error, match=case.told) as told:
        add(case.request(given), root)
    assert "\n" not in str(told.value)
    assert not root.exists() or not list(root.iterdir())
