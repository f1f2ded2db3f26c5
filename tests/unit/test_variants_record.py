"""What a variant's config.pbtxt says of it is written, read back, and shown beside each speed."""

from __future__ import annotations

import shutil
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from loadtest.manifest import describe_run
from loadtest.report.page import render as render_page
from loadtest.report.terminal import summary_table
from loadtest.results import Settings, Summary
from serving.errors import ModelError, UsageError
from serving.models.config import load_message, render
from serving.models.repository import Model
from serving.models.samples import samples_for, source_of_samples
from serving.models.variants.parameters import read_record, tolerance_of, write_record
from serving.models.variants.record import VariantRecord
from serving.models.variants.registry import KINDS, resolve_kind
from serving.tolerance import HALF_PRECISION, Tolerance
from tests import sample_report
from tests.sample_models import write_tiny

RECORD = VariantRecord(
    of="tiny",
    kind="int8-static",
    made="2 quantised tensors",
    sha256="00",
    size_bytes=100,
    parent_size_bytes=400,
    inputs=8,
    inputs_source="zoo",
    largest_difference=0.1 + 0.2,
    mean_difference=1e-9,
    cosine=0.999,
    top1_agreement=0.875,
    measured_with="a CPU",
)


def changed(**fields: object) -> VariantRecord:
    return RECORD.model_copy(update=fields)


def write_variant(root: Path, record: VariantRecord) -> Model:
    """A copy of ``tiny`` beside it that says it is a variant."""
    parent = write_tiny(root)
    variant = Model(root, f"tiny-{record.kind}")
    shutil.copytree(parent.folder, variant.folder)
    message = load_message(parent.folder / "config.pbtxt")
    message.name = variant.name
    write_record(message, record.model_copy(update={"sha256": variant.sha256()}))
    (variant.folder / "config.pbtxt").write_text(render(message))
    return variant


def settings(model: Model) -> Settings:
    return Settings(
        model=model.name,
        backends=("null",),
        levels=(1,),
        duration_s=1.0,
        repeats=1,
        timeout_s=1.0,
        seed=1,
        server_cpus=(0,),
        client_cpus=(0,),
    )


def test_a_record_survives_its_file(tmp_path: Path) -> None:
    variant = write_variant(tmp_path, RECORD)
    assert read_record(variant.config) == changed(sha256=variant.sha256())
    assert variant.config.parameters["variant_of"] == "tiny"


def test_a_model_without_one_is_no_variant(tiny: Model) -> None:
    assert read_record(tiny.config) is None


@pytest.mark.parametrize(
    ("old", "new", "named"),
    [
        ('"variant_cosine"', '"cosine"', "variant_cosine: Field required"),
        ('"variant_inputs"', '"variant_input"', "variant_inputs: Field required"),
        ('"0.999"', '"high"', "variant_cosine: Input should be a valid number"),
    ],
)
def test_half_a_record_is_refused(tmp_path: Path, old: str, new: str, named: str) -> None:
    config = write_variant(tmp_path, RECORD).folder / "config.pbtxt"
    config.write_text(config.read_text().replace(old, new))
    with pytest.raises(ModelError, match=named):
        read_record(Model(tmp_path, "tiny-int8-static").config)


@pytest.mark.parametrize(
    ("fields", "drop", "measure"),
    [
        ({}, 0.125, "top-1"),
        ({"task_lost": 0.5}, 0.5, "task"),
        ({"task_lost": 0.0}, 0.125, "top-1"),
        ({"top1_agreement": None, "task_lost": 0.25}, 0.25, "task"),
        ({"top1_agreement": None}, 0.001, "1 - cosine"),
    ],
)
def test_the_drop_is_the_larger_share(
    fields: dict[str, float | None], drop: float, measure: str
) -> None:
    record = changed(**fields)
    assert record.drop == pytest.approx(drop)
    assert record.measure == measure


def test_half_precision_has_its_own_tolerance(tmp_path: Path, tiny: Model) -> None:
    assert tolerance_of(write_variant(tmp_path, changed(kind="fp16")).config) == HALF_PRECISION
    assert tolerance_of(tiny.config) == Tolerance()


def test_samples_are_the_parents(tmp_path: Path) -> None:
    variant = write_variant(tmp_path, RECORD)
    samples, parents = samples_for(variant), samples_for(Model(tmp_path, "tiny"))
    assert [s.name for s in samples] == [s.name for s in parents]
    assert all(
        (a.inputs["x"] == b.inputs["x"]).all() for a, b in zip(samples, parents, strict=True)
    )
    assert source_of_samples(variant) == "generated"


def test_samples_of_a_variant_of_the_zoo_are_the_zoos(tmp_path: Path) -> None:
    variant = write_variant(tmp_path, changed(of="image_classifier"))
    assert source_of_samples(variant) == "zoo"


def test_the_manifest_holds_the_record(tmp_path: Path) -> None:
    variant = write_variant(tmp_path, RECORD)
    manifest = describe_run(variant, settings(variant), "infersweep compare")
    assert manifest.variant == changed(sha256=variant.sha256())


def test_accuracy_of_another_file_is_refused(tmp_path: Path) -> None:
    variant = write_variant(tmp_path, RECORD)
    write_tiny(tmp_path / "other", seed=8).file.replace(variant.file)
    with pytest.raises(ModelError, match="measured on another file"):
        describe_run(variant, settings(variant), "infersweep compare")


def summary_of(record: VariantRecord | None) -> Summary:
    summary = sample_report.summary()
    manifest = summary.manifest.model_copy(update={"variant": record})
    return summary.model_copy(update={"manifest": manifest})


def shown(summary: Summary) -> str:
    out = StringIO()
    Console(file=out, width=120).print(summary_table(summary))
    return out.getvalue()


def test_the_drop_stands_beside_each_speed() -> None:
    summary = summary_of(RECORD)
    points = [point for backend in summary.backends for point in backend.points]
    table = shown(summary)
    assert table.count("12.5%") == len(points)
    assert "top-1 against tiny, on 8 inputs (zoo), cosine 0.99900" in " ".join(table.split())
    page = render_page(summary)
    assert page.count('<td class="number">12.5%</td>') == len(points) + len(summary.ranking.rows)
    assert page.count("Drop (top-1)</th>") == 2


def test_a_model_that_is_no_variant_has_no_drop() -> None:
    summary = summary_of(None)
    assert "drop" not in shown(summary)
    assert "Drop" not in render_page(summary)


def test_every_kind_is_known_by_its_name() -> None:
    assert {"fp16", "int8-dynamic", "int8-static", "pruned", "simplified", "qat"} < KINDS.keys()
    with pytest.raises(UsageError, match=r"no kind of variant 'int4'\. Kinds: fp16, int8-dynamic"):
        resolve_kind("int4")
