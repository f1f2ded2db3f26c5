"""A PyTorch network as ONNX, its batch axis free."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import nn

_OPSET = 17


def export(
    module: nn.Module,
    target: Path,
    *,
    row: Sequence[int],
    input_name: str,
    output_names: Sequence[str],
) -> None:
    """Write ``module``, in eval mode and of one float32 input, to ``target``.

    ``row`` is the input's shape without the batch axis.
    """
    import torch  # noqa: PLC0415  (a second of start-up)

    with warnings.catch_warnings():
        # The tracing exporter is deprecated and says so at length; the networks of the zoo have no
        # control flow, and what it writes is checked on real inputs.
        warnings.simplefilter("ignore")
        torch.onnx.export(
            module,
            (torch.zeros(1, *row),),
            str(target),
            input_names=[input_name],
            output_names=list(output_names),
            dynamic_axes={name: {0: "batch"} for name in (input_name, *output_names)},
            opset_version=_OPSET,
            dynamo=False,
        )
