"""What the launcher tells the worker processes, through their environment."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from pydantic import BaseModel, ConfigDict

ENVIRONMENT_PREFIX = "INFERSWEEP_FASTAPI_"


class Settings(BaseModel):
    """Attributes are the environment's names in lower case, without the prefix.

    ``decompressed_limit_bytes`` bounds a body that came compressed, after it is unpacked.
    """

    model_config = ConfigDict(frozen=True)

    repository: Path
    model: str
    engine: str
    inference_threads: int
    decompressed_limit_bytes: int = 256 << 20

    def to_environment(self) -> dict[str, str]:
        return {f"{ENVIRONMENT_PREFIX}{key.upper()}": str(value) for key, value in self}

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] = os.environ) -> Settings:
        """Raises pydantic.ValidationError when a variable is missing."""
        found = {
            key.removeprefix(ENVIRONMENT_PREFIX).lower(): value
            for key, value in environment.items()
            if key.startswith(ENVIRONMENT_PREFIX)
        }
        return cls.model_validate(found)
