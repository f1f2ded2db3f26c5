"""Every experiment keeps what the playbook promises of all of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from loadtest.playbook import experiments
from loadtest.playbook.catalogue import catalogue
from loadtest.playbook.experiment import QUICK, Experiment, Lab
from loadtest.playbook.loader import no_load
from serving.errors import InfersweepError
from serving.models.repository import find_model
from tests.unit.test_playbook_run import Quiet

ROOT = Path(__file__).parents[2]
MODELS = ("image_classifier", "flight_policy", "text_encoder", "voice_activity")
FILES = sorted(
    file.stem for file in Path(experiments.__file__).parent.glob("*.py") if file.stem != "__init__"
)


@pytest.fixture(params=catalogue().values(), ids=catalogue())
def experiment(request: pytest.FixtureRequest) -> Experiment:
    found: Experiment = request.param
    return found


@pytest.mark.parametrize("file", FILES)
def test_a_file_is_an_experiment_of_its_name(file: str) -> None:
    assert file.replace("_", "-") in catalogue()


def test_it_says_what_people_state_and_where_it_is_explained(experiment: Experiment) -> None:
    low, high = experiment.usual
    assert low >= 1
    assert high is None or high >= low
    page, _, anchor = experiment.page.partition("#")
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    assert not anchor or f"{anchor.replace('-', ' ')}" in text.lower().replace("-", " ")
    assert experiment.claim.endswith(".")


@pytest.mark.parametrize("model", MODELS)
def test_it_says_what_it_lacks_or_names_its_arms(
    experiment: Experiment, model: str, tmp_path: Path
) -> None:
    lab = Lab(find_model(model), tmp_path, tmp_path, (0,), (1,), 2, QUICK, Quiet(), no_load)
    if experiment.missing(lab):
        return
    try:
        arms = experiment.arms(lab)
    except InfersweepError:
        return
    names = [arm.name for arm in arms]
    assert len(set(names)) == len(names) >= 2
    assert all(arm.what for arm in arms)
