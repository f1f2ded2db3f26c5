"""Bring your own model: from a user's file to a model of the repository."""

from __future__ import annotations

from serving.importing.adding import Added, add
from serving.importing.axes import GivenLengths
from serving.importing.request import OnnxFile, Request, Source
from serving.importing.sklearn_source import SklearnFile
from serving.importing.torch_source import TorchModule, TorchScriptFile
from serving.importing.trying import Wanted

__all__ = [
    "Added",
    "GivenLengths",
    "OnnxFile",
    "Request",
    "SklearnFile",
    "Source",
    "TorchModule",
    "TorchScriptFile",
    "Wanted",
    "add",
]
