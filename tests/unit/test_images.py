"""The Dockerfile as far as no daemon is needed: its rules, its stages, and the packages in them."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from loadtest.engine.build import library_path
from tests.closure import import_only

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "Dockerfile").read_text().replace("\\\n", " ")
STAGES = {
    name: (base, steps)
    for base, name, steps in re.findall(
        r"^FROM (\S+) AS (\S+)$(.*?)(?=^FROM|\Z)", TEXT, re.MULTILINE | re.DOTALL
    )
}
FINAL = ("server", "models", "loadgen")
MODULES = {
    "server": (
        *("serving.backends.onnxruntime.__main__", "serving.backends.fastapi.app"),
        *("serving.backends.fastapi.gunicorn_hooks", "serving.backends.fastapi.exporter"),
        *("serving.session", "serving.engine_cache", "uvicorn_worker", "gunicorn.app.wsgiapp"),
        "deploy.place_models",
    ),
    "loadgen": (
        *("locust", "loadtest.locustfile", "loadtest.by_hand", "loadtest.cli", "skimage.data"),
        *("loadtest.observing.exporter", "serving.backends.null.__main__"),
    ),
}


def test_the_dockerfile_has_no_fault_that_hadolint_knows() -> None:
    told = subprocess.run(
        [Path(sys.executable).with_name("hadolint"), "--no-color", ROOT / "Dockerfile"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert not told.returncode, told.stdout


def test_every_stage_stands_on_one_image_of_a_known_version() -> None:
    (outside,) = {base for base, _ in STAGES.values() if base not in STAGES}
    assert re.fullmatch(r"python:3\.11\.\d+-slim-\w+", outside)


def test_what_is_copied_is_there_and_is_sent_to_the_builder() -> None:
    lines = (ROOT / ".dockerignore").read_text().splitlines()
    sent = {line[1:] for line in lines if line.startswith("!")}
    copied = {
        source
        for sources in re.findall(r"^COPY (?!--from)(.+) \S+$", TEXT, re.MULTILINE)
        for source in sources.split()
    }
    assert copied == sent
    assert all((ROOT / source).exists() for source in copied)


@pytest.mark.parametrize("name", FINAL)
def test_a_final_image_has_no_compiler_and_no_root(name: str) -> None:
    base, steps = STAGES[name]
    if base in FINAL:
        steps = STAGES[base][1] + steps
    assert "apt-get" not in steps
    assert re.findall(r"^USER (.+)$", steps, re.MULTILINE) == ["1000:1000"]
    assert "HEALTHCHECK" in steps


def test_the_engine_that_the_image_compiled_is_found_and_not_compiled_again(tmp_path: Path) -> None:
    """The entry point links it into a cache that starts empty."""
    text = (ROOT / "deploy" / "with_engine.sh").read_text()
    image, cache = tmp_path / "image", tmp_path / "cache"
    image.mkdir()
    (image / library_path().name).write_bytes(b"compiled")
    script = tmp_path / "with_engine.sh"
    assert "/opt/infersweep" in STAGES["build-loadgen"][1]
    script.write_text(text.replace("/opt/infersweep", str(image)))
    code = "from loadtest.engine.build import build; print(build().read_bytes().decode())"
    told = subprocess.run(
        ["sh", script, sys.executable, "-c", code],
        env={**os.environ, "INFERSWEEP_CACHE": str(cache), "CC": "false"},
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (told.stdout, told.stderr) == ("compiled\n", "")
    assert os.access(ROOT / "deploy" / "with_engine.sh", os.X_OK)


@pytest.mark.parametrize("image", MODULES)
def test_an_image_holds_every_package_that_it_imports(image: str) -> None:
    listed = ROOT / "deploy" / "requirements" / f"{image}.txt"
    assert import_only(listed, MODULES[image]) == ""


def test_a_package_that_an_image_lacks_is_noticed(tmp_path: Path) -> None:
    few = tmp_path / "few.txt"
    few.write_text("numpy\n")
    assert "No module named 'orjson' in the image" in import_only(few, ["orjson"])
