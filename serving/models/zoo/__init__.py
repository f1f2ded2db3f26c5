"""The models that come with the project: one file each, one line each in ``ENTRIES``."""

from __future__ import annotations

from collections.abc import Mapping

from serving.models.zoo import (
    face_detector,
    feature_extractor,
    flight_policy,
    image_classifier,
    text_encoder,
    voice_activity,
)
from serving.models.zoo.entry import ZooEntry

ENTRIES: Mapping[str, ZooEntry] = {
    entry.name: entry
    for entry in (
        image_classifier.ENTRY,
        face_detector.ENTRY,
        feature_extractor.ENTRY,
        voice_activity.ENTRY,
        flight_policy.ENTRY,
        text_encoder.ENTRY,
    )
}
