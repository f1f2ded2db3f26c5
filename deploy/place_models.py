"""Put one model where a server reads it: as it is, or with its instances on a GPU.

``python -m deploy.place_models SOURCE TARGET --model NAME --accelerator cpu|gpu``. The committed
configurations say KIND_CPU, and nothing falls back: a server that is to use a GPU must be told so.
"""

from __future__ import annotations

import argparse
import shutil
import sys
from pathlib import Path

from tritonclient.grpc import model_config_pb2 as schema

from serving.errors import InfersweepError
from serving.models.config import load_message, render
from serving.models.repository import Model, find_model


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m deploy.place_models")
    parser.add_argument("source", type=Path)
    parser.add_argument("target", type=Path)
    parser.add_argument("--model", required=True)
    parser.add_argument("--accelerator", choices=("cpu", "gpu"), required=True)
    asked = parser.parse_args(arguments)
    try:
        place(asked.model, asked.source, asked.target, on_gpu=asked.accelerator == "gpu")
    except InfersweepError as error:
        sys.stderr.write(f"{error}\n")
        return error.exit_code
    return 0


def place(name: str, source: Path, target: Path, *, on_gpu: bool) -> None:
    """Copy the newest version of ``name``, and its steps, into ``target``, over what is there.

    Raises:
        ModelError: there is no such model in ``source``, or it has not been built.
    """
    model = find_model(name, source)
    for one in (model, *model.steps):
        # A pipeline has no instances of its own, and its front half runs on the CPU.
        _place_one(one, target, on_gpu=on_gpu and one is model.computed)


def _place_one(model: Model, target: Path, *, on_gpu: bool) -> None:
    configuration = model.folder / "config.pbtxt"
    there = target / model.name
    version = model.folder / str(model.version)
    left_out = shutil.ignore_patterns("__pycache__")
    shutil.copytree(version, there / version.name, ignore=left_out, dirs_exist_ok=True)
    message = load_message(configuration)
    text = configuration.read_text(encoding="utf-8")
    (there / "config.pbtxt").write_text(
        render(on_first_gpu(message)) if on_gpu else text, encoding="utf-8"
    )


def on_first_gpu(message: schema.ModelConfig) -> schema.ModelConfig:
    """A copy with as many instances as before, all on the first GPU that the container sees."""
    placed = schema.ModelConfig()
    placed.CopyFrom(message)
    count = sum(group.count for group in message.instance_group) or 1
    del placed.instance_group[:]
    placed.instance_group.add(count=count, kind=schema.ModelInstanceGroup.KIND_GPU, gpus=[0])
    return placed


if __name__ == "__main__":
    sys.exit(main())
