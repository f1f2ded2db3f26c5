"""Variants of a model that lose little enough to be served in its place."""

from __future__ import annotations

from collections.abc import Iterator

from serving.errors import ModelError
from serving.models.repository import Model, list_models
from serving.models.variants.parameters import read_record


def variants_within(model: Model, drop: float) -> Iterator[Model]:
    """Those in the model's repository whose measured drop is at most ``drop``, 0 to 1.

    Raises:
        ModelError: the drop of one was measured on another file.
    """
    for other in list_models(model.root):
        record = read_record(other.config)
        if record is None or record.of != model.name or not other.is_built:
            continue
        if record.drop > drop:
            continue
        if record.sha256 != other.sha256():
            raise ModelError(
                f"the accuracy of {other.name!r} was measured on another file than {other.file}",
                hint="Remove its folder and make it again with `infersweep models variant`.",
            )
        yield other
