"""A pipeline: a front half and the model behind it, as one ensemble of Triton's.

Our own servers know ensembles of exactly this form: one input, two steps of the newest versions, a
front half and then a model whose outputs are the ensemble's, by their own names. The ensemble is
called ``<model>_<payload>`` and its first step ``<model>_front_<payload>``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tritonclient.grpc import model_config_pb2 as schema

from serving.errors import ModelError
from serving.fronthalf import FrontHalf
from serving.fronthalf.picture import PREFIX

if TYPE_CHECKING:
    from serving.models.config import ModelConfig, TensorSpec

PLATFORM = "ensemble"
STEP_BACKEND = "python"
PICTURE = "picture"
"""The input of a front half."""
_NEWEST = -1


@dataclass(frozen=True)
class Pipeline:
    """Attributes: ``front`` and ``model`` are the names of the models of the two steps."""

    front: str
    model: str


def states_front_half(message: schema.ModelConfig) -> bool:
    """Whether the configuration is that of a front half, be it right or not."""
    return message.backend == STEP_BACKEND and any(
        key.startswith(PREFIX) for key in message.parameters
    )


def pipeline_of(message: schema.ModelConfig) -> Pipeline | None:
    """``None`` for what is no ensemble, and for an ensemble of another form."""
    steps = message.ensemble_scheduling.step
    if len(steps) != 2 or len(message.input) != 1:
        return None
    front, model = steps
    newest = all(step.model_version == _NEWEST for step in steps)
    outputs = {item.name: item.name for item in message.output}
    chained = list(front.output_map.values()) == list(model.input_map.values())
    if (
        list(front.input_map.items()) != [(message.input[0].name, message.input[0].name)]
        or len(front.output_map) != 1
        or not (chained and newest)
        or dict(model.output_map) != outputs
    ):
        return None
    return Pipeline(front.model_name, model.model_name)


def require_known_form(config: ModelConfig) -> None:
    """Raises ModelError for an ensemble that is no front half with a model behind it."""
    if "ensemble_scheduling" in config.unserved:
        raise ModelError(
            f"model {config.name!r} is an ensemble, and no front half with a model behind it",
            hint="docs/front-half.md shows the form that every backend serves.",
        )


def why_apart(own: ModelConfig, front: ModelConfig, model: ModelConfig) -> str:
    """What does not fit between an ensemble and its steps, ``front`` being a front half."""
    rows = min(front.max_batch_size, model.max_batch_size)
    wrong = {
        f"{model.name} is no model of its own": bool(model.front or model.pipeline),
        f"its input is not that of {front.name}": own.inputs != front.inputs,
        f"its outputs are not those of {model.name}": own.outputs != model.outputs,
        f"what {front.name} gives is not what {model.name} takes": not _fits(
            front.outputs, model.inputs
        ),
        "its max_batch_size is more than that of a step": own.max_batch_size > rows,
        "it has no batch axis": not own.batched,
    }
    return next((why for why, found in wrong.items() if found), "")


def write_pipeline(
    name: str, model: ModelConfig, front: FrontHalf
) -> tuple[schema.ModelConfig, schema.ModelConfig]:
    """The configurations of the step ``front`` and of the ensemble called ``name``.

    ``model`` has one input of FP32 and a batch axis.
    """
    (tensor,) = model.inputs
    dims = (1,) if front.payload == "jpeg" else (front.height, front.width, 3)
    datatype = schema.TYPE_STRING if front.payload == "jpeg" else schema.TYPE_UINT8
    step = schema.ModelConfig(
        name=f"{model.name}_front_{front.payload}",
        backend=STEP_BACKEND,
        max_batch_size=model.max_batch_size,
    )
    step.input.add(name=PICTURE, data_type=datatype, dims=dims)
    step.output.add(
        name=tensor.name,
        data_type=schema.TYPE_FP32,
        dims=(front.depth, front.height, front.width),
    )
    step.instance_group.add(count=model.instances, kind=schema.ModelInstanceGroup.KIND_CPU)
    for key, value in front.parameters().items():
        step.parameters[key].string_value = value
    ensemble = schema.ModelConfig(name=name, platform=PLATFORM, max_batch_size=model.max_batch_size)
    ensemble.input.add(name=PICTURE, data_type=datatype, dims=dims)
    for spec in model.outputs:
        kind = schema.DataType.Value(
            f"TYPE_{'STRING' if spec.datatype == 'BYTES' else spec.datatype}"
        )
        ensemble.output.add(name=spec.name, data_type=kind, dims=spec.dims)
    steps = ensemble.ensemble_scheduling.step
    steps.add(
        model_name=step.name,
        model_version=_NEWEST,
        input_map={PICTURE: PICTURE},
        output_map={tensor.name: tensor.name},
    )
    steps.add(
        model_name=model.name,
        model_version=_NEWEST,
        input_map={tensor.name: tensor.name},
        output_map={spec.name: spec.name for spec in model.outputs},
    )
    return step, ensemble


def _fits(given: Sequence[TensorSpec], taken: Sequence[TensorSpec]) -> bool:
    return len(given) == len(taken) == 1 and all(
        one.datatype == other.datatype
        and len(one.dims) == len(other.dims)
        and all(want in (-1, have) for want, have in zip(other.dims, one.dims, strict=True))
        for one, other in zip(given, taken, strict=True)
    )
