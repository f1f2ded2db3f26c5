"""Where a backend does not do what the suite asks of all. docs/backends.md has every reason."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum


class Outcome(Enum):
    """What a reply's status says, over HTTP or gRPC; the codes themselves differ by server."""

    OK = "ok"
    CLIENT_FAULT = "client fault"
    SERVER_FAULT = "server fault"


@dataclass(frozen=True)
class Difference:
    """One way in which one backend is different.

    Attributes:
        cases: the capabilities or faults concerned, by the names that the tests use.
        outcome: how it answers them instead; ``None`` when it cannot be asked at all.
    """

    backend: str
    cases: tuple[str, ...]
    reason: str
    outcome: Outcome | None = None


DIFFERENCES = (
    Difference(
        "triton",
        (
            "header length absent",
            "header length of the whole body",
            "size is text",
            "size below zero",
            "not JSON",
            "JSON of another kind",
            "no inputs",
            "inputs of another kind",
            "shape below zero",
            "shape with a fraction",
            "no shape",
            "too few values",
            "too many values",
            "text for a number",
            "fraction for an integer",
            "number for a text",
            "id is a number",
            "compressed body cut off",
        ),
        "answers 500 to JSON that it cannot parse, to JSON of another kind than it wants and to a "
        "wrong number of values",
        Outcome.SERVER_FAULT,
    ),
    Difference(
        "triton",
        ("header length taken for zero",),
        "takes a header length that is no number for zero: a model with one input of free length "
        "answers 200 from the bytes of the JSON",
        Outcome.OK,
    ),
    Difference(
        "triton",
        ("load of an unknown model",),
        "answers 500, over gRPC INTERNAL, to the load of a model that is not in the repository",
        Outcome.SERVER_FAULT,
    ),
    Difference(
        "triton",
        ("unload of an unknown model",),
        "answers 200 to the unload of a model that it does not know",
        Outcome.OK,
    ),
    Difference(
        "triton",
        ("region without memory", "output larger than its region"),
        "answers 500, over gRPC INTERNAL, to a region of no shared memory and to an output that "
        "does not fit its region",
        Outcome.SERVER_FAULT,
    ),
    Difference(
        "triton",
        ("a region inside its memory",),
        "adds the offset of a region twice: it answers 200 from memory behind the right place",
    ),
    Difference(
        "triton",
        ("two regions of one memory",),
        "fails to register a second region of shared memory that it has registered already",
    ),
    Difference(
        "triton",
        ("unknown content encoding",),
        "answers 501 to a content encoding that it does not know",
        Outcome.SERVER_FAULT,
    ),
    Difference(
        "triton",
        ("integer outside its datatype",),
        "takes an integer in JSON that does not fit its datatype, wrapped around",
        Outcome.OK,
    ),
    Difference(
        "triton",
        ("NaN in JSON", "NaN asked for in JSON"),
        "writes and reads NaN and infinity in JSON as bare words, which strict parsers refuse",
        Outcome.OK,
    ),
    Difference(
        "triton",
        ("faults are explained",),
        "does not always name the tensor that is at fault, nor what was expected of it",
    ),
    Difference(
        "triton",
        ("ready after a failed load",),
        "is not ready any more once a model could not be loaded, not even when it is unloaded",
    ),
    Difference(
        "onnxruntime",
        ("deflate over gRPC",),
        "takes gRPC messages that are compressed by gzip, but not by deflate, which its HTTP/2 "
        "library does not have",
    ),
    Difference(
        "fastapi",
        ("grpc",),
        "does not speak gRPC",
    ),
    Difference(
        "fastapi",
        ("model_repository",),
        "serves one model from its start to its end: no repository index, no load or unload",
    ),
    Difference(
        "fastapi",
        ("statistics",),
        "keeps no statistics: each of its workers would know its own requests only",
    ),
    Difference(
        "fastapi",
        ("system_shared_memory",),
        "has no shared memory: a region would have to be registered with each of its workers",
    ),
)

_BY_CASE: Mapping[tuple[str, str], Difference] = {
    (difference.backend, case): difference
    for difference in DIFFERENCES
    for case in difference.cases
}


def difference(backend: str, case: str) -> Difference | None:
    return _BY_CASE.get((backend, case))


def expected(backend: str, case: str) -> Outcome:
    """How ``backend`` answers the fault ``case``: as the client's own, unless it is listed."""
    found = difference(backend, case)
    return found.outcome if found and found.outcome else Outcome.CLIENT_FAULT
