"""A model that is asked the same again at a known rate, and a cache that holds only that.

The generator draws from a model's samples, each as likely. So one sample that is stored many times
is a repeat as often as it is drawn, while each of the others has left a small cache, which forgets
what was used least recently, before it comes again.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path

import numpy as np

from loadtest.playbook.experiment import Lab
from serving.backends import triton
from serving.backends.base import Launch, ServePlan
from serving.errors import MachineError, ModelError
from serving.models.config import load_message, render
from serving.models.repository import Model, place
from serving.models.samples import samples_for
from serving.models.stored_samples import FOLDER, SUFFIX, write_arrays
from serving.protocol import Array

ENTRIES = 4
"""More than one, so that what repeats is seldom pushed out by what comes between."""
_TRIES = 1000
_LEAST_BYTES, _ENTRY_BYTES = 1024, 160
"""What Triton's local cache takes at the least; what an answer needs there beside its values."""


def repeating(lab: Lab, repeats: int, distinct: int) -> Model:
    """The model with samples of its own: ``repeats`` times one, and ``distinct`` others.

    Raises:
        ModelError: so many different inputs cannot be made.
    """
    root = lab.folder / f"repeats-{repeats}-of-{repeats + distinct}"
    folder = root / lab.model.name / FOLDER
    if len([*folder.glob(f"*{SUFFIX}")]) == repeats + distinct:
        return Model(root, lab.model.name)
    samples = [sample.inputs for sample in samples_for(lab.model)]
    rng = np.random.default_rng(lab.seed)
    made = list(islice(varied(samples, rng), distinct + 1))
    if len(made) <= distinct:
        raise ModelError(
            f"only {len(made)} different inputs could be made of the samples of {lab.model.name!r}",
            hint="Store samples with more different values beside the model.",
        )
    placed = place(lab.model, root, instances=1, intra_op_threads=1)
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    for number, inputs in enumerate(made[: distinct + bool(repeats)]):
        write_arrays(folder / f"{number:04}{SUFFIX}", inputs)
    for number in range(distinct + 1, distinct + repeats):
        (folder / f"{number:04}{SUFFIX}").hardlink_to(folder / f"{distinct:04}{SUFFIX}")
    return placed


def varied(
    samples: Sequence[Mapping[str, Array]], rng: np.random.Generator
) -> Iterator[Mapping[str, Array]]:
    """Inputs of which no two are equal: samples in turns, each with one value in another's place.

    So every value is one that the model is really shown. Of several inputs the one with the most
    different values is changed. Ends where no new one was found in many tries.
    """
    seen: set[bytes] = set()
    failed = number = 0
    while failed < _TRIES:
        inputs = dict(samples[number % len(samples)])
        number += 1
        name = max(inputs, key=lambda one: len(np.unique(inputs[one])))
        changed = inputs[name].copy()
        flat = changed.reshape(-1)
        place_of, value_of = rng.integers(0, flat.size, 2)
        flat[place_of] = flat[value_of]
        inputs[name] = changed
        content = b"".join(_content(inputs[key]) for key in sorted(inputs))
        if content in seen:
            failed += 1
            continue
        failed = 0
        seen.add(content)
        yield inputs


def _content(array: Array) -> bytes:
    # Text is an array of references.
    return (array.astype(np.bytes_) if array.dtype.kind == "O" else array).tobytes()


def with_cache(lab: Lab) -> Callable[[ServePlan], Launch]:
    """Launches Triton with a response cache for about ``ENTRIES`` answers of the lab's model.

    What it gives raises MachineError where this Triton has no local cache or runs in a container.
    """

    def launch_of(plan: ServePlan) -> Launch:
        launch = triton.BACKEND.launch(plan)
        program = Path(launch.argv[0])
        caches = program.parent.parent / "caches"
        if launch.hidden or not (caches / "local").is_dir():
            raise MachineError(
                f"Triton's local cache does not lie beside {program}",
                hint="Set INFERSWEEP_TRITON=wheel, which has it.",
            )
        path = plan.model.folder / "config.pbtxt"
        message = load_message(path)
        message.response_cache.enable = True
        path.write_text(render(message), encoding="utf-8")
        answers = lab.reference.answers
        answer_bytes = max(sum(array.nbytes for array in one.values()) for one in answers)
        size_bytes = max(_LEAST_BYTES, ENTRIES * (answer_bytes + _ENTRY_BYTES))
        cache = (f"--cache-config=local,size={size_bytes}", f"--cache-directory={caches}")
        facts = {**launch.facts, "response cache": f"{size_bytes} bytes"}
        return replace(launch, argv=(*launch.argv, *cache), facts=facts)

    return launch_of
