"""Which NVIDIA libraries are needed, where they are found, and how to get the others."""

from __future__ import annotations

from pathlib import Path

import onnxruntime
import pytest

from serving.gpu_libraries import libraries, locate, missing, way_out
from serving.models.accelerators import CPU, CUDA, TENSORRT

LINKED = """\
\tlinux-vdso.so.1 (0x00007ffd1)
\tlibcublas.so.13 => not found
\tlibcudart.so.13 => /usr/local/cuda/lib64/libcudart.so.13 (0x00007f1)
\tlibcuda.so.1 => not found
\tlibstdc++.so.6 => /lib/x86_64-linux-gnu/libstdc++.so.6 (0x00007f2)
\tlibmystery.so.1 => not found
"""


def touch(*parts: str | Path) -> Path:
    file = Path(*parts)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.touch()
    return file


def test_the_loader_s_word_counts_first_and_only_nvidia_s_libraries(tmp_path: Path) -> None:
    found = {library.name: library.path for library in locate(LINKED, (), tmp_path, ())}
    assert found == {
        "libcublas.so.13": None,
        "libcudart.so.13": Path("/usr/local/cuda/lib64/libcudart.so.13"),
        "libcuda.so.1": None,
    }


def test_what_python_packages_brought_is_found(tmp_path: Path) -> None:
    blas = touch(tmp_path, "nvidia", "cu13", "lib", "libcublas.so.13")
    dnn = touch(tmp_path, "nvidia", "cudnn", "lib", "libcudnn.so.9")
    plugin = touch(tmp_path, "tensorrt_libs", "libnvinfer_plugin.so.10")
    opened = ("libcudnn.so.9", "libnvinfer_plugin.so.10")
    found = {library.name: library.path for library in locate(LINKED, opened, tmp_path, ())}
    assert (found["libcublas.so.13"], found["libcudnn.so.9"]) == (blas, dnn)
    assert found["libnvinfer_plugin.so.10"] == plugin


def test_what_is_opened_later_is_sought_where_the_loader_looks(tmp_path: Path) -> None:
    dnn = touch(tmp_path, "system", "libcudnn.so.9")
    (found,) = locate("", ("libcudnn.so.9",), tmp_path / "wheels", (tmp_path / "system",))
    assert found.path == dnn


def test_another_version_is_shown_and_does_not_count(tmp_path: Path) -> None:
    old = touch(tmp_path, "system", "libcudnn.so.8")
    (found,) = locate("", ("libcudnn.so.9",), tmp_path, (tmp_path / "system",))
    assert (found.path, found.others) == (None, (old,))


@pytest.mark.parametrize(
    ("names", "told"),
    [
        (["libcuda.so.1"], ["driver"]),
        (["libcublasLt.so.13", "libcudnn.so.9"], ["[cuda,cudnn]"]),
        (["libnvinfer.so.10", "libnvonnxparser.so.10"], ["-libs==10.*"]),
        (["libcuda.so.1", "libcudnn.so.9", "libnvinfer.so.10"], ["driver", "cudnn", "==10.*"]),
        ([], []),
    ],
)
def test_each_library_has_its_way_out(names: list[str], told: list[str]) -> None:
    text = way_out(names)
    assert all(part in text for part in told)
    assert text.count(".") >= len(told)
    assert len([part for part in ("driver", "cudnn]", "-libs") if part in text]) == len(told)


def test_the_cpu_provider_needs_nothing() -> None:
    assert libraries(CPU) == ()
    assert missing(CPU) == ()


@pytest.mark.skipif(
    TENSORRT not in onnxruntime.get_available_providers(), reason="ONNX Runtime without TensorRT"
)
def test_the_installed_package_tells_its_own_needs() -> None:
    cuda = {library.name for library in libraries(CUDA)}
    tensorrt = {library.name for library in libraries(TENSORRT)}
    major = onnxruntime.cuda_version.partition(".")[0]
    assert {f"libcudart.so.{major}", f"libcublas.so.{major}", "libcuda.so.1"} <= cuda
    assert any(name.startswith("libcudnn.so.") for name in cuda)
    assert any(name.startswith("libnvinfer.so.") for name in tensorrt)
