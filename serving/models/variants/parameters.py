"""A variant's record among the parameters of its ``config.pbtxt``."""

from __future__ import annotations

from pydantic import ValidationError
from tritonclient.grpc import model_config_pb2 as schema

from serving.errors import ModelError
from serving.models.config import ModelConfig
from serving.models.repository import Model
from serving.models.variants.record import VariantRecord
from serving.tolerance import Tolerance, tolerance_for

PREFIX = "variant_"


def read_record(config: ModelConfig) -> VariantRecord | None:
    """What the configuration says, ``None`` when the model is no variant.

    Raises:
        ModelError: it says a part of it only, or what is not known.
    """
    found = {
        key.removeprefix(PREFIX): value
        for key, value in config.parameters.items()
        if key.startswith(PREFIX)
    }
    if not found:
        return None
    try:
        return VariantRecord.model_validate(found)
    except ValidationError as error:
        first = error.errors()[0]
        name = ".".join(str(part) for part in first["loc"])
        raise ModelError(
            f"model {config.name!r}: parameter {PREFIX}{name}: {first['msg']}",
            hint="Make the variant again with `infersweep models variant`.",
        ) from None


def require_own_file(record: VariantRecord, model: Model, sha256: str) -> None:
    """Raises ModelError when the drop was measured on another file than that of ``sha256``."""
    if record.sha256 != sha256:
        raise ModelError(
            f"the accuracy of {model.name!r} was measured on another file than {model.file}",
            hint="Remove its folder and make it again with `infersweep models variant`.",
        )


def tolerance_of(config: ModelConfig) -> Tolerance:
    """How closely two servers of one model must agree."""
    record = read_record(config)
    return tolerance_for(record.kind if record else "")


def write_record(message: schema.ModelConfig, record: VariantRecord) -> None:
    """State ``record`` among the parameters of ``message``, in place of any other."""
    drop_record(message)
    for name, value in record.model_dump(exclude_none=True).items():
        message.parameters[f"{PREFIX}{name}"].string_value = str(value)


def drop_record(message: schema.ModelConfig) -> None:
    """Take a record out, such as the one of the variant that another is made from."""
    for key in [key for key in message.parameters if key.startswith(PREFIX)]:
        del message.parameters[key]
