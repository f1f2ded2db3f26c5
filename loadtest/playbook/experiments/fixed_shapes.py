"""Free axes given the one length that they have here.

No advice follows: such a file takes one row at a time, and inputs of one size.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import onnx

from loadtest.playbook.called import Called, Calls, Job
from loadtest.playbook.engines import session_calls
from loadtest.playbook.experiment import Experiment, Lab
from loadtest.playbook.needs import own_graph
from serving.errors import ModelError
from serving.importing.staging import FIRST_VERSION, publish, staging
from serving.models.repository import Model
from serving.models.samples import samples_for
from serving.models.stored_samples import FOLDER as SAMPLES
from serving.models.variants.kind import save
from serving.protocol import Array

_CONFIG = "config.pbtxt"


def fix(graph: onnx.GraphProto, inputs: Sequence[Mapping[str, Array]]) -> dict[str, int]:
    """Give each free axis of ``graph`` the length that all ``inputs`` have there.

    Returns:
        What was fixed, by the axis's name, or by input and place where it has none. An axis of
        several lengths stays free.
    """
    lengths: dict[str, set[int]] = {}
    axes: dict[str, list[onnx.TensorShapeProto.Dimension]] = {}
    for value in graph.input:
        for at, axis in enumerate(value.type.tensor_type.shape.dim):
            if value.name in inputs[0] and not axis.HasField("dim_value"):
                name = axis.dim_param or f"{value.name}[{at}]"
                axes.setdefault(name, []).append(axis)
                lengths.setdefault(name, set()).update(row[value.name].shape[at] for row in inputs)
    for value in (*graph.output, *graph.value_info):
        for axis in value.type.tensor_type.shape.dim:
            if axis.dim_param in axes:
                axes[axis.dim_param].append(axis)
    fixed = {name: min(found) for name, found in lengths.items() if len(found) == 1}
    for name, length in fixed.items():
        for axis in axes[name]:
            axis.dim_value = length
    return fixed


def _kept(lab: Lab, graph: onnx.ModelProto) -> Model:
    """``graph`` as the lab's model, kept for the whole playbook."""
    root, model = lab.shared / "fixed", lab.model
    made = Model(root, model.name)
    if made.folder.is_dir():
        return made
    with staging(root, model.name) as draft:
        save(graph, draft.file_of(FIRST_VERSION))
        (draft.folder / _CONFIG).write_bytes((model.folder / _CONFIG).read_bytes())
        if (model.folder / SAMPLES).is_dir():
            (draft.folder / SAMPLES).symlink_to((model.folder / SAMPLES).resolve())
        return publish(draft, root)


def _build(job: Job) -> Calls:
    return session_calls(job)


def _arms(lab: Lab) -> tuple[Called, ...]:
    loaded = onnx.load(lab.model.file)
    fixed = fix(loaded.graph, [sample.inputs for sample in samples_for(lab.model)])
    if not fixed:
        raise ModelError(
            f"no free axis of {lab.model.name} has the same length in all of its inputs",
            hint="There is nothing to fix.",
        )
    made = _kept(lab, loaded)
    told = ", ".join(f"{name}={length}" for name, length in fixed.items())
    return (
        Called("free", "ONNX Runtime, axes as free as the model has them", _build),
        Called("fixed", f"ONNX Runtime, axes fixed: {told}", _build, model=lambda _lab: made),
    )


EXPERIMENT = Experiment(
    name="fixed-shapes",
    title="Fixed shapes",
    claim="Fixing the shapes of a model's inputs makes inference faster.",
    usual=(1.1, 1.5),
    page="models.md",
    arms=_arms,
    missing=own_graph,
)
