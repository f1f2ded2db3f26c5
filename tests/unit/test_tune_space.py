"""What a search may try, and for how long."""

from __future__ import annotations

from itertools import product
from pathlib import Path
from random import Random

import pytest

from loadtest.tune.budget import Budget, parse_budget
from loadtest.tune.prepare import plan_of
from loadtest.tune.space import VARIANT, Space, space_of
from loadtest.tune.variants import variants_within
from serving.errors import ModelError, UsageError
from serving.knobs import Axis, Room, Setting, threads
from serving.models.repository import Model
from serving.models.variants.record import VariantRecord
from tests.sample_models import TINY_CONFIG, write_tiny

MODE = Axis("mode", ("one", "many"), "one")
THREADS = Axis("threads", ("1", "2", "3"), "1")
BATCH = Axis("batch", ("1", "2", "4", "8"), "8")


def only_with_many(setting: Setting) -> Setting:
    """Threads have an effect in one mode only."""
    return setting if setting["mode"] == "many" else {**setting, "threads": "1"}


def not_too_many(setting: Setting) -> str:
    product = int(setting["threads"]) * int(setting["batch"])
    return "too many" if product > 8 else ""


SMALL = Space((MODE, THREADS, BATCH), not_too_many, only_with_many)


def test_every_setting_is_counted_once_and_only_if_it_makes_sense() -> None:
    launched = set()
    for values in product(MODE.values, THREADS.values, BATCH.values):
        setting = dict(zip(("mode", "threads", "batch"), values, strict=True))
        if not not_too_many(setting):
            launched.add(tuple(only_with_many(setting).items()))
    assert SMALL.members is not None
    assert {tuple(SMALL.setting(point).items()) for point in SMALL.members} == launched
    assert len(set(SMALL.members)) == len(SMALL.members)
    assert SMALL.size.settings == len(launched)
    assert SMALL.size.exact


def test_the_default_changes_nothing() -> None:
    assert SMALL.setting(SMALL.default) == {"mode": "one", "threads": "1", "batch": "8"}
    assert SMALL.changes(SMALL.default) == {}
    assert SMALL.holds(SMALL.default)


def test_a_space_that_is_too_large_to_list_is_estimated_and_still_never_senseless() -> None:
    wide = tuple(Axis(f"k{i}", tuple(map(str, range(9))), "0") for i in range(6))
    space = Space(wide, lambda setting: "odd" if int(setting["k0"]) % 2 else "")
    assert space.members is None
    assert not space.size.exact
    assert space.size.settings == pytest.approx(space.combinations * 5 / 9, rel=0.1)
    assert "about" in space.size.text
    for point in (*space.draw(Random(1), 50), *space.near(space.default)):
        assert space.holds(point)


def test_near_a_setting_lie_those_with_one_or_two_other_values() -> None:
    near = list(SMALL.near(SMALL.default))
    assert SMALL.default not in near
    assert len(set(near)) == len(near)
    assert SMALL.members is not None
    expected = {
        point
        for point in SMALL.members
        if 1 <= sum(a != b for a, b in zip(point, SMALL.default, strict=True)) <= 2
    }
    assert set(near) == expected


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Model:
    return write_tiny(tmp_path_factory.mktemp("repository"))


@pytest.mark.parametrize("label", ["onnxruntime", "fastapi", "triton"])
def test_no_setting_has_more_threads_than_cpus_unless_asked(label: str, tiny: Model) -> None:
    asked = {}
    for oversubscribe in (1.0, 2.0):
        space = space_of(label, {"tiny": Room(2, tiny.config, oversubscribe)})
        points = space.members or tuple(space.draw(Random(1), 2_000))
        full = [space.canonical(space.setting(point)) for point in points]
        asked[oversubscribe] = max(threads(setting) for setting in full)
    assert asked[1.0] == 2
    assert asked[2.0] > 2


def test_a_backend_without_knobs_is_refused(tiny: Model) -> None:
    with pytest.raises(UsageError, match="nothing to turn"):
        plan_of(tiny, ["null"], cpus=1)


def test_an_unknown_knob_is_refused_with_those_that_there_are(tiny: Model) -> None:
    with pytest.raises(UsageError, match=r"no knob 'bach'.*max_batch_size"):
        plan_of(tiny, ["onnxruntime"], cpus=1, only=["bach"])


def test_each_backend_is_searched_over_those_of_the_named_knobs_that_it_has(tiny: Model) -> None:
    only = ["instances", "workers", "intra_op_threads"]
    plan = plan_of(tiny, ["onnxruntime", "fastapi"], cpus=2, only=only)
    names = {label: [axis.knob for axis in space.axes] for label, space in plan.spaces.items()}
    assert names == {
        "onnxruntime": ["instances", "intra_op_threads"],
        "fastapi": ["workers", "intra_op_threads"],
    }


@pytest.fixture
def family(tmp_path: Path) -> Model:
    """A model with two variants, of which one loses too much."""
    parent = write_tiny(tmp_path)
    for name, lost in (("tiny_good", 0.004), ("tiny_bad", 0.2)):
        config = TINY_CONFIG.replace('name: "tiny"', f'name: "{name}"')
        child = _copy(parent, name, config)
        record = VariantRecord(
            of="tiny",
            kind="int8",
            made="by hand",
            sha256=child.sha256(),
            size_bytes=1,
            parent_size_bytes=2,
            inputs=10,
            inputs_source="made up",
            largest_difference=0.1,
            mean_difference=0.1,
            cosine=0.99,
            top1_agreement=1 - lost,
            measured_with="nothing",
        )
        lines = "".join(
            f'parameters {{ key: "variant_{key}" value {{ string_value: "{value}" }} }}\n'
            for key, value in record.model_dump(exclude_none=True).items()
        )
        (child.folder / "config.pbtxt").write_text(config + lines)
    return parent


def _copy(parent: Model, name: str, config: str) -> Model:
    child = Model(parent.root, name)
    version = child.folder / str(parent.version)
    version.mkdir(parents=True)
    (version / "model.onnx").write_bytes(parent.file.read_bytes())
    (child.folder / "config.pbtxt").write_text(config)
    return child


def test_only_variants_within_the_accuracy_budget_are_tried(family: Model) -> None:
    assert [one.name for one in variants_within(family, 0.01)] == ["tiny_good"]
    plan = plan_of(family, ["onnxruntime"], cpus=1, accuracy_budget=0.01)
    axis = next(one for one in plan.spaces["onnxruntime"].axes if one.knob == VARIANT)
    assert (axis.values, axis.default) == (("tiny", "tiny_good"), "tiny")
    without = plan_of(family, ["onnxruntime"], cpus=1)
    assert VARIANT not in [one.knob for one in without.spaces["onnxruntime"].axes]


def test_a_variant_whose_file_has_changed_is_not_trusted(family: Model) -> None:
    file = Model(family.root, "tiny_good").file
    file.write_bytes(file.read_bytes() + b"\0")
    with pytest.raises(ModelError, match="measured on another file"):
        list(variants_within(family, 0.01))


@pytest.mark.parametrize(
    ("text", "budget"),
    [
        ("30", Budget(settings=30)),
        ("30 trials", Budget(settings=30)),
        ("1 trial", Budget(settings=1)),
        ("20m", Budget(seconds=1200)),
        ("1.5 h", Budget(seconds=5400)),
        ("90s", Budget(seconds=90)),
    ],
)
def test_a_budget_is_settings_or_time(text: str, budget: Budget) -> None:
    assert parse_budget(text) == budget


@pytest.mark.parametrize(
    "text", ["0", "0 trials", "0m", "-3", "2.5", "many", "", "5 days", "1.2.3m"]
)
def test_a_budget_that_buys_nothing_is_one_line_with_the_next_step(text: str) -> None:
    with pytest.raises(UsageError, match=r"--budget.*Write for example"):
        parse_budget(text)


def test_a_budget_is_spent_by_what_it_counts() -> None:
    assert not Budget(settings=3).is_spent(2, 1e9)
    assert Budget(settings=3).is_spent(3, 0)
    assert not Budget(seconds=60).is_spent(1_000, 59)
    assert Budget(seconds=60).is_spent(0, 60)
