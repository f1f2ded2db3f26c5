"""Variants of a model that lose little enough to be served in its place."""

from __future__ import annotations

from collections.abc import Iterator

from serving.models.repository import Model, list_models
from serving.models.variants.parameters import read_record, require_own_file


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
        require_own_file(record, other, other.sha256())
        yield other
