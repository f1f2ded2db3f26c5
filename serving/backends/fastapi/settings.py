"""What the launcher tells gunicorn's processes, through their environment."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from serving.errors import UsageError

ENVIRONMENT_PREFIX = "INFERSWEEP_FASTAPI_"


class Settings(BaseModel):
    """Attributes are the environment's names in lower case, without the prefix.

    ``decompressed_limit_bytes`` bounds a body that came compressed, after it is unpacked. Without
    ``metrics_port`` there are no metrics. ``slo_ms`` is the objective whose keeping they count.
    """

    model_config = ConfigDict(frozen=True)

    repository: Path
    model: str
    engine: str
    inference_threads: int
    decompressed_limit_bytes: int = 256 << 20
    metrics_port: int | None = Field(None, ge=1, le=65535)
    metrics_host: str = "127.0.0.1"
    slo_ms: float | None = Field(None, gt=0, allow_inf_nan=False)

    @property
    def slo_ns(self) -> int | None:
        return None if self.slo_ms is None else round(self.slo_ms * 1e6)

    def to_environment(self) -> dict[str, str]:
        """What is ``None`` is left out."""
        return {
            f"{ENVIRONMENT_PREFIX}{key.upper()}": str(value)
            for key, value in self
            if value is not None
        }

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] = os.environ) -> Settings:
        """Raises UsageError when a variable is missing or cannot be."""
        found = {
            key.removeprefix(ENVIRONMENT_PREFIX).lower(): value
            for key, value in environment.items()
            if key.startswith(ENVIRONMENT_PREFIX)
        }
        try:
            return cls.model_validate(found)
        except ValidationError as error:
            first = error.errors()[0]
            name = f"{ENVIRONMENT_PREFIX}{str(first['loc'][0]).upper()}"
            raise UsageError(
                f"{name} in the environment: {first['msg']}",
                hint="The fastapi service in docker-compose.yml sets all that are needed.",
            ) from None
