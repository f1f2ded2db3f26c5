"""PyTorch and TorchScript models: exported, and compared with themselves."""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
import pytest
import torch

from serving.errors import InfersweepError, ModelError, UsageError
from serving.importing import (
    Added,
    GivenLengths,
    Request,
    Source,
    TorchModule,
    TorchScriptFile,
    Wanted,
    add,
)
from tests.odd_nets import Scaled

SCALED = {"x": (1, 8), "scale": (1, 1)}


# TorchScript is deprecated; whoever has such a file must still be served.
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning:torch.jit")


def added(source: Source, root: Path, **more: tuple[int, ...]) -> Added:
    return add(Request(source, "net", Wanted(given=GivenLengths(shapes=more))), root)


def dims(found: Added) -> list[tuple[int, ...]]:
    config = found.model.config
    return [config.wire_dims(spec) for spec in (*config.inputs, *config.outputs)]


def test_a_module_is_exported_with_a_free_batch_axis(tmp_path: Path) -> None:
    found = added(TorchModule("tests.odd_nets:Scaled"), tmp_path, **SCALED)
    assert dims(found) == [(-1, 8), (-1, 1), (-1, 4), (-1, 1)]
    assert found.model.config.max_batch_size == 8
    told = "\n".join(found.remarks)
    assert "with a free batch axis" in told
    assert "answers as the original on 8 inputs" in told


def test_a_sample_says_what_float32_numbers_cannot(tmp_path: Path) -> None:
    ids = np.arange(10).reshape(2, 5)
    np.savez(tmp_path / "ids.npz", ids=ids)
    request = Request(TorchModule("tests.odd_nets:Named"), "named", samples=tmp_path / "ids.npz")
    model = add(request, tmp_path / "all").model
    assert [(spec.name, spec.datatype) for spec in model.config.inputs] == [("ids", "INT64")]
    assert [spec.name for spec in model.config.outputs] == ["embedding"]


def test_an_axis_that_cannot_be_freed_is_told(tmp_path: Path) -> None:
    found = added(TorchModule("tests.odd_nets:FixedRows"), tmp_path, x=(1, 8))
    assert dims(found) == [(1, 8), (1, 8)]
    assert "all axes fixed, since the exporter fixes the first axis of 'x'" in found.remarks[0]


def test_torchscript_is_exported_and_compared(tmp_path: Path) -> None:
    example = (torch.zeros(1, 8), torch.zeros(1, 1))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.jit.save(torch.jit.trace(Scaled().eval(), example), tmp_path / "net.pt")
    found = added(TorchScriptFile(tmp_path / "net.pt"), tmp_path / "all", **SCALED)
    assert dims(found) == [(-1, 8), (-1, 1), (-1, 4), (-1, 1)]
    assert any("answers as the original" in remark for remark in found.remarks)


def test_an_export_that_answers_otherwise_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The module changes after it was exported: as if the exporter had erred."""
    export = torch.onnx.export

    def and_then_train(module: torch.nn.Module, *arguments: object, **options: object) -> object:
        program = export(module, *arguments, **options)  # type: ignore[arg-type]
        torch.nn.init.ones_(module.layer.bias)  # type: ignore[union-attr, arg-type]
        return program

    monkeypatch.setattr(torch.onnx, "export", and_then_train)
    with pytest.raises(ModelError, match="as ONNX its output 'output_0' is off by"):
        added(TorchModule("tests.odd_nets:Scaled"), tmp_path / "all", **SCALED)
    assert list((tmp_path / "all").iterdir()) == []


@pytest.mark.parametrize(
    ("spec", "error", "told"),
    [
        ("tests.odd_nets", UsageError, "Write module:factory"),
        ("tests.nowhere:Scaled", UsageError, "No module named"),
        ("tests.odd_nets:Nothing", UsageError, "has no attribute 'Nothing'"),
        ("tests.odd_nets:a_number", UsageError, "makes a int"),
        ("tests.odd_nets:without_weights", ModelError, "fails: FileNotFoundError: weights.pt"),
        ("tests.odd_nets:Scaled", UsageError, "input 'scale' of the module looks like"),
        ("tests.odd_nets:Listed", ModelError, "answers with a str where a tensor should be"),
    ],
)
def test_what_is_no_module_is_told(
    spec: str, error: type[InfersweepError], told: str, tmp_path: Path
) -> None:
    with pytest.raises(error, match=told):
        added(TorchModule(spec), tmp_path / "all", x=(1, 8))


def test_weights_alone_are_no_torchscript(tmp_path: Path) -> None:
    torch.save(Scaled().state_dict(), tmp_path / "weights.pt")
    with pytest.raises(ModelError, match="Weights alone make no model"):
        added(TorchScriptFile(tmp_path / "weights.pt"), tmp_path / "all", **SCALED)
