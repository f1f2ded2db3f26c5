"""PyTorch modules for ``models add --torch``."""

from __future__ import annotations

import torch
from torch import nn


class Scaled(nn.Module):
    """Two inputs, two outputs, and a layer that behaves otherwise in training."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(8, 4)
        self.norm = nn.BatchNorm1d(4)

    def forward(self, x: torch.Tensor, scale: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        y = self.norm(self.layer(x)) * scale
        return y, y.sum(1, keepdim=True)


class Named(nn.Module):
    """Answers with a dictionary; takes token ids."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(50, 3)

    def forward(self, ids: torch.Tensor) -> dict[str, torch.Tensor]:
        return {"embedding": self.table(ids)}


class FixedRows(nn.Module):
    """Written for two rows or for one, so no exporter can free that axis."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.reshape(2, 8) if x.shape[0] == 2 else x.reshape(1, 8)


class Listed(nn.Module):
    """Answers with something else than tensors."""

    def forward(self, x: torch.Tensor) -> list[str]:
        return [str(x.shape)]


def without_weights() -> nn.Module:
    raise FileNotFoundError("weights.pt")


def a_number() -> int:
    return 3
