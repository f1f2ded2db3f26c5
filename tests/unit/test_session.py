"""Sessions: the provider that was asked for, or none; the process that made it, or none."""

from __future__ import annotations

import os

import numpy as np
import onnxruntime
import pytest

from serving.errors import MachineError, ServerError
from serving.models.repository import Model
from serving.providers import PROVIDERS, loadable_providers, require_provider
from serving.session import open_session


def test_a_session_answers_in_the_configurations_order(tiny: Model) -> None:
    answer = open_session(tiny).run({"x": np.zeros((2, 64), np.float32)})
    assert list(answer) == ["y"]
    assert answer["y"].shape == (2, 10)


def test_an_unknown_provider_is_an_error_before_loading() -> None:
    with pytest.raises(MachineError, match="CUDAExecutonProvider"):
        require_provider("CUDAExecutonProvider")


def test_a_silent_fallback_is_an_error(tiny: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    class Fallen:
        def get_providers(self) -> list[str]:
            return ["SomeOtherProvider"]

    monkeypatch.setattr(onnxruntime, "InferenceSession", lambda *_, **__: Fallen())
    with pytest.raises(MachineError, match="got SomeOtherProvider"):
        open_session(tiny)


def test_the_cpu_provider_loads_everywhere() -> None:
    assert loadable_providers()[PROVIDERS["cpu"]] == ""


def test_a_session_does_not_cross_a_fork(tiny: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    session = open_session(tiny)
    inputs = {"x": np.zeros((1, 64), np.float32)}
    here = os.getpid()
    monkeypatch.setattr(os, "getpid", lambda: here + 1)
    with pytest.raises(ServerError, match="after the fork"):
        session.run(inputs)
