"""Sessions on a GPU, with a stand-in for ONNX Runtime: what is asked of it and what is told."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import onnxruntime
import pytest

from serving import gpu_libraries, providers
from serving.cuda import CudaDriver
from serving.errors import MachineError, ModelError
from serving.models.accelerators import CPU, CUDA, TENSORRT
from serving.models.repository import Model
from serving.session import open_session
from serving.shape_ranges import OPTIONS
from tests.sample_models import (
    TINY_CONFIG,
    write_tiny,
)

REAL = onnxruntime.InferenceSession

ON_TENSORRT = """
optimization {{ execution_accelerators {{ gpu_execution_accelerator : [ {{
  name: "tensorrt"
  parameters {{ key: "precision_mode" value: "FP16" }}
  parameters {{ key: "trt_engine_cache_path" value: "{cache}" }}
}} ] }} }}
"""


class Gpu:
    """Stands for ONNX Runtime with its GPU providers; the CPU does the work.

    Attributes:
        given: the providers that a session comes up with.
        nodes: how many operators each takes.
        asked: what the last session was asked for, by provider.
    """

    def __init__(self, *, builds: bool = True) -> None:
        self.given: list[str] | None = None
        self.nodes = {TENSORRT: 3}
        self.asked: dict[str, dict[str, str]] = {}
        self.ran: list[tuple[int, ...]] = []
        self.builds = builds

    def __call__(
        self,
        file: str,
        options: onnxruntime.SessionOptions,
        providers: Sequence[tuple[str, dict[str, str]]],
        **_: object,
    ) -> Any:
        self.asked = dict(providers)
        if self.builds:
            engine = Path(self.asked[TENSORRT]["trt_engine_cache_path"]) / "graph_sm90.engine"
            if not engine.exists():
                engine.write_bytes(b"engine")
        real = REAL(file, options, providers=[CPU])
        return SimpleNamespace(
            get_providers=lambda: self.given or list(self.asked),
            get_provider_graph_assignment_info=lambda: [
                SimpleNamespace(ep_name=name, get_nodes=lambda count=count: [None] * count)
                for name, count in self.nodes.items()
            ],
            run=self._running(real),
        )

    def _running(self, real: Any) -> Callable[..., Any]:
        def run(names: list[str], inputs: dict[str, Any], options: Any) -> Any:
            self.ran.append(inputs["x"].shape)
            return real.run(names, inputs, options)

        return run


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> Gpu:
    found = Gpu()
    monkeypatch.setattr(onnxruntime, "InferenceSession", found)
    monkeypatch.setattr(onnxruntime, "get_available_providers", lambda: [TENSORRT, CUDA, CPU])
    monkeypatch.setattr(providers, "cuda_driver", lambda: CudaDriver((13, 0), 1))
    return found


def on_tensorrt(root: Path) -> Model:
    model = write_tiny(root / "models")
    text = TINY_CONFIG.replace("count: 1 kind: KIND_CPU", "count: 1 kind: KIND_GPU gpus: [ 0 ]")
    extra = ON_TENSORRT.format(cache=root / "engines")
    (model.folder / "config.pbtxt").write_text(text + extra)
    return model


def test_an_engine_is_built_before_the_first_request(gpu: Gpu, tmp_path: Path) -> None:
    model = on_tensorrt(tmp_path)
    session = open_session(model)
    assert (session.provider, session.nodes) == (TENSORRT, {TENSORRT: 3})
    assert gpu.ran == [(8, 64)]
    asked = gpu.asked[TENSORRT]
    assert asked["trt_fp16_enable"] == asked["trt_engine_cache_enable"] == "1"
    assert asked[OPTIONS[0]] == "x:1x64"
    assert asked[OPTIONS[2]] == "x:8x64"
    assert session.engine is not None
    assert session.engine.outcome == "built"
    assert session.engine.seconds > 0
    assert Path(asked["trt_engine_cache_path"]).parent == tmp_path / "engines"
    again = open_session(model)
    assert again.engine is not None
    assert (again.engine.outcome, again.engine.folder) == ("reused", session.engine.folder)


def test_an_empty_cache_is_told(gpu: Gpu, tmp_path: Path) -> None:
    gpu.builds = False
    session = open_session(on_tensorrt(tmp_path))
    assert session.engine is not None
    assert session.engine.outcome == "cache not used"


def test_tensorrt_that_fell_back_to_cuda_is_an_error(gpu: Gpu, tmp_path: Path) -> None:
    gpu.given = [CUDA, CPU]
    with pytest.raises(MachineError, match=f"asked for {TENSORRT}, {CUDA}, {CPU} and got {CUDA}"):
        open_session(on_tensorrt(tmp_path))


def test_tensorrt_that_takes_no_operator_is_an_error(gpu: Gpu, tmp_path: Path) -> None:
    gpu.nodes = {CUDA: 2, CPU: 1}
    with pytest.raises(ModelError, match=f"{TENSORRT} takes none of the 3 operators"):
        open_session(on_tensorrt(tmp_path))


def test_a_provider_that_does_not_start_names_its_libraries(
    gpu: Gpu, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise RuntimeError("Please install TensorRT libraries.")

    monkeypatch.setattr(onnxruntime, "InferenceSession", refuse)
    model = on_tensorrt(tmp_path)
    monkeypatch.setattr("serving.session.missing", lambda _: ("libnvinfer.so.10",))
    with pytest.raises(MachineError, match=r"not start: libnvinfer\.so\.10 missing.*tensorrt-cu"):
        open_session(model)
    monkeypatch.setattr("serving.session.missing", lambda _: ())
    with pytest.raises(MachineError, match=r"not start: Please install TensorRT.*doctor"):
        open_session(model)


def test_a_gpu_that_is_not_there_is_told_before_anything_is_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "-1")
    monkeypatch.setattr(onnxruntime, "get_available_providers", lambda: [TENSORRT, CUDA, CPU])
    monkeypatch.setattr(onnxruntime, "InferenceSession", lambda *_, **__: pytest.fail("loaded"))
    with pytest.raises(MachineError, match="hidden by CUDA_VISIBLE_DEVICES='-1'"):
        open_session(on_tensorrt(tmp_path))


def test_loading_first_what_packages_brought_says_nothing(
    capfd: pytest.CaptureFixture[str],
) -> None:
    gpu_libraries.preload()
    assert capfd.readouterr() == ("", "")
