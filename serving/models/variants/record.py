"""What is known of a variant: whose it is, and what it costs in accuracy.

A load generator imports this with the results' schema, so it imports little itself.
"""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field


class VariantRecord(BaseModel):
    """Each field is a parameter of ``config.pbtxt``, with ``variant_`` before its name.

    Differences are between the variant's answers and its parent's, over all outputs.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    of: str = Field(description="the parent")
    kind: str = Field(description="how it was made; several are joined by +")
    made: str = Field(description="what was done, in words")
    sha256: str = Field(description="of the model file that was measured")
    size_bytes: int
    parent_size_bytes: int
    inputs: int = Field(description="how many inputs the accuracy was measured on")
    inputs_source: str = Field(description="where they came from")
    largest_difference: float
    mean_difference: float
    cosine: float = Field(description="the lowest of any output, over all inputs")
    top1_agreement: float | None = Field(
        default=None, description="share of inputs with the parent's largest score; classifiers"
    )
    task_lost: float | None = Field(
        default=None, description="share of inputs that only the parent answers rightly; zoo"
    )
    measured_with: str = Field(description="runtime, provider and processor")

    @property
    def drop(self) -> float:
        """What is lost, 0 to 1: the larger of both shares, and where there is none 1 - cosine."""
        return max(self._shares.values(), default=1 - self.cosine)

    @property
    def measure(self) -> str:
        """What ``drop`` is a share of, or the measure it is."""
        return max(self._shares, key=lambda name: self._shares[name], default="1 - cosine")

    @property
    def _shares(self) -> dict[str, float]:
        shares = {}
        if self.top1_agreement is not None:
            shares["top-1"] = 1 - self.top1_agreement
        if self.task_lost is not None:
            shares["task"] = self.task_lost
        return shares
