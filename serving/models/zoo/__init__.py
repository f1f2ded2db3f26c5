"""The models that come with the project: one file each, one line each in ``ENTRIES``."""

from __future__ import annotations

from collections.abc import Mapping

from serving.models.zoo.entry import ZooEntry

ENTRIES: Mapping[str, ZooEntry] = {}
