"""Sessions: the provider that was asked for, or none; the process that made it, or none."""

from __future__ import annotations

import os

import numpy as np
import onnxruntime
import pytest

from serving.errors import MachineError, ServerError
from serving.models.repository import Model
from serving.protocol import ProtocolError
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


def test_a_forked_child_is_refused_and_may_open_its_own(tiny: Model) -> None:
    session = open_session(tiny)
    inputs = {"x": np.zeros((1, 64), np.float32)}
    session.run(inputs)
    child = os.fork()
    if child == 0:
        status = 1
        try:
            session.run(inputs)
        except ServerError:
            status = 0 if list(open_session(tiny).run(inputs)) == ["y"] else 2
        finally:
            # Not ``exit``: deleting the parent's session here could hang.
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_threads_are_stated_and_no_fallback_is_left(
    tiny: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: dict[str, object] = {}

    class Recorded:
        def __init__(self, _: str, options: onnxruntime.SessionOptions, **more: object) -> None:
            seen.update(
                more, intra=options.intra_op_num_threads, inter=options.inter_op_num_threads
            )
            seen["spin"] = options.get_session_config_entry("session.intra_op.allow_spinning")

        def get_providers(self) -> list[str]:
            return [PROVIDERS["cpu"]]

    monkeypatch.setattr(onnxruntime, "InferenceSession", Recorded)
    assert open_session(tiny, intra_op_threads=3).provider == PROVIDERS["cpu"]
    assert seen == {
        "providers": [PROVIDERS["cpu"]],
        "enable_fallback": 0,
        "intra": 3,
        "inter": 1,
        "spin": "0",
    }


def test_a_shape_that_the_graph_refuses_is_the_clients_fault(tiny: Model) -> None:
    with pytest.raises(ProtocolError, match="refuses"):
        open_session(tiny).run({"x": np.zeros((1, 63), np.float32)})
