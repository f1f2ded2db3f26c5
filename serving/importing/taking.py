"""An ONNX file becomes version 1 of a staged model: checked, and untouched unless it must be."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from serving.errors import ModelError
from serving.importing.external import copy_external, external_files
from serving.importing.limits import require_loadable
from serving.importing.staging import write_graph
from serving.models.inspection import Dims, GraphReport, describe, read_graph
from serving.models.normalise import drop_initializers_from_inputs, nodes_of, set_axes

_MIXING_OPERATOR = "DynamicQuantizeLinear"


@dataclass(frozen=True)
class Taken:
    """What was taken.

    Attributes:
        changes: what was changed in the graph, a line each; empty for a copy of the same bytes.
        weight_files: names of the weight files beside it.
        quantizes_batches: an operator scales each batch by its largest value, so that rows depend
            on each other.
    """

    report: GraphReport
    changes: tuple[str, ...]
    weight_files: tuple[str, ...]
    quantizes_batches: bool
    licence: str


def take_graph(source: Path, target: Path, label: str) -> Taken:
    """Put the model at ``source`` to ``target``, with its weight files beside it.

    Raises:
        ModelError: it cannot be served, with the reason and the mend.
    """
    graph = read_graph(source)
    require_loadable(graph, label)
    report = describe(graph)
    if not report.inputs:
        raise ModelError(f"{label} has no inputs", hint="Export it with what it is to be asked.")
    files = external_files(graph, source.parent)
    weights, old_format = drop_initializers_from_inputs(graph), report.ir_version
    if weights:
        changes = [
            f"taken out of the graph's inputs, so that they can be folded: {weights} weights"
        ]
        if graph.ir_version != old_format:
            changes.append(f"file format raised from IR version {old_format}, which demands them")
        write_graph(graph, target)
    else:
        changes = []
        # The kernel copies: nothing of it comes into this process.
        shutil.copyfile(source, target)
    copy_external(files, target.parent)
    licences = [p.value for p in graph.metadata_props if p.key.lower() in ("license", "licence")]
    return Taken(
        report,
        tuple(changes),
        tuple(file.location for file in files),
        any(node.op_type == _MIXING_OPERATOR for node in nodes_of(graph)),
        "".join(licences[:1]),
    )


def correct_shapes(file: Path, dims: Mapping[str, Dims]) -> None:
    """Declare inputs and outputs of the graph in ``file`` anew."""
    graph = read_graph(file)
    set_axes(graph, dims)
    write_graph(graph, file)
