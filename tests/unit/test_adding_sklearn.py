"""scikit-learn pipelines, where skl2onnx is installed; and what is said where it is not."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

from serving.errors import MachineError, ModelError
from serving.importing import Request, SklearnFile, add


def test_without_skl2onnx_the_extra_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "skl2onnx", None)
    with pytest.raises(MachineError, match=r"pip install 'infersweep\[sklearn\]'"):
        add(Request(SklearnFile(tmp_path / "pipeline.joblib")), tmp_path / "all")


@pytest.fixture
def fitted(tmp_path: Path) -> Path:
    """A classifier of three kinds of flowers, by name."""
    pytest.importorskip("skl2onnx")
    import joblib
    from sklearn.datasets import load_iris
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    rows, kinds = load_iris(return_X_y=True)
    names = np.array(["setosa", "versicolor", "virginica"])[kinds]
    pipeline = make_pipeline(StandardScaler(), LogisticRegression()).fit(rows, names)
    joblib.dump(pipeline, tmp_path / "flowers.joblib")
    return tmp_path / "flowers.joblib"


def test_a_classifier_answers_with_tensors_and_as_itself(fitted: Path, tmp_path: Path) -> None:
    found = add(Request(SklearnFile(fitted)), tmp_path / "all")
    config = found.model.config
    assert [(s.name, s.datatype, s.dims) for s in config.outputs] == [
        ("label", "BYTES", (-1,)),
        ("probabilities", "FP32", (-1, 3)),
    ]
    told = "\n".join(found.remarks)
    assert "'label' has one axis only" in told
    assert "answers as the original on 8 inputs" in told


def test_what_was_not_fitted_is_told(tmp_path: Path) -> None:
    pytest.importorskip("skl2onnx")
    import joblib
    from sklearn.linear_model import Ridge

    joblib.dump(Ridge(), tmp_path / "ridge.joblib")
    with pytest.raises(ModelError, match="no fitted pipeline"):
        add(Request(SklearnFile(tmp_path / "ridge.joblib")), tmp_path / "all")


def test_what_cannot_be_read_is_told(tmp_path: Path) -> None:
    pytest.importorskip("skl2onnx")
    (tmp_path / "note.pkl").write_text("dear model")
    with pytest.raises(ModelError, match="cannot be read"):
        add(Request(SklearnFile(tmp_path / "note.pkl")), tmp_path / "all")
    with pytest.raises(ModelError, match="does not exist"):
        add(Request(SklearnFile(tmp_path / "none.pkl")), tmp_path / "all")
