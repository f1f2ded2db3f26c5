"""Models whose rows cost less in one batch than one by one: a policy and a command encoder.

A row alone is a chain of small products, where calling the operators costs as much as computing.
The weights are random and seeded: what is measured does not depend on what was learnt.
"""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import TYPE_CHECKING

from serving.models.repository import Model

if TYPE_CHECKING:
    from torch import Tensor, nn

OBSERVATIONS, FEATURES, HIDDEN, ACTIONS = 4, 22, 64, 4
TOKENS, VOCABULARY, WIDTH, LAYERS = 8, 1000, 32, 6
_OPSET = 17

_CONFIG = """\
name: "{name}"
backend: "onnxruntime"
max_batch_size: 32
input [ {{ name: "x" data_type: {datatype} dims: [ {dims} ] }} ]
output [ {{ name: "y" data_type: TYPE_FP32 dims: [ {width} ] }} ]
instance_group [ {{ count: 1 kind: KIND_CPU }} ]
dynamic_batching {{ max_queue_delay_microseconds: 0 }}
parameters {{ key: "intra_op_thread_count" value {{ string_value: "1" }} }}
parameters {{ key: "inter_op_thread_count" value {{ string_value: "1" }} }}
"""


def write_recurrent_policy(root: Path) -> Model:
    """Two GRU layers of 64 over the last four observations of 22 values; four actions."""
    import torch  # noqa: PLC0415  (a second of start-up)
    from torch import nn  # noqa: PLC0415

    class Policy(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.gru = nn.GRU(FEATURES, HIDDEN, num_layers=2, batch_first=True)
            self.head = nn.Linear(HIDDEN, ACTIONS)

        def forward(self, x: Tensor) -> Tensor:
            _, state = self.gru(x)
            return torch.tanh(self.head(state[-1]))

    torch.manual_seed(1)
    example = torch.zeros(2, OBSERVATIONS, FEATURES)
    config = _CONFIG.format(
        name="recurrent_policy",
        datatype="TYPE_FP32",
        dims=f"{OBSERVATIONS}, {FEATURES}",
        width=ACTIONS,
    )
    return _write(root, "recurrent_policy", config, Policy(), example)


def write_command_encoder(root: Path) -> Model:
    """Six transformer layers of width 32 over eight tokens, averaged."""
    import torch  # noqa: PLC0415
    from torch import nn  # noqa: PLC0415

    class Encoder(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.words = nn.Embedding(VOCABULARY, WIDTH)
            self.places = nn.Parameter(torch.randn(TOKENS, WIDTH))
            layer = nn.TransformerEncoderLayer(
                WIDTH, 4, 4 * WIDTH, dropout=0.0, batch_first=True, norm_first=True
            )
            self.layers = nn.TransformerEncoder(layer, LAYERS, enable_nested_tensor=False)

        def forward(self, x: Tensor) -> Tensor:
            encoded: Tensor = self.layers(self.words(x) + self.places)
            return encoded.mean(1)

    torch.manual_seed(1)
    example = torch.zeros(2, TOKENS, dtype=torch.long)
    config = _CONFIG.format(
        name="command_encoder", datatype="TYPE_INT64", dims=str(TOKENS), width=WIDTH
    )
    return _write(root, "command_encoder", config, Encoder(), example)


def _write(root: Path, name: str, config: str, module: nn.Module, example: Tensor) -> Model:
    import torch  # noqa: PLC0415

    folder = root / name / "1"
    folder.mkdir(parents=True)
    with warnings.catch_warnings():
        # The tracing exporter is deprecated and says so at length.
        warnings.simplefilter("ignore")
        torch.onnx.export(
            module.eval(),
            (example,),
            str(folder / "model.onnx"),
            input_names=["x"],
            output_names=["y"],
            dynamic_axes={"x": {0: "batch"}, "y": {0: "batch"}},
            opset_version=_OPSET,
            dynamo=False,
        )
    (root / name / "config.pbtxt").write_text(config)
    return Model(root, name)
