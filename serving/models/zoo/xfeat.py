"""The network of XFeat: six blocks of convolutions, a pyramid, two heads.

Potje et al., CVPR 2024, figure 3; layers are named as in the published weights (Apache-2.0).
"""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn import functional

CELL = 8
_NORM_EPSILON = 1e-5


class Layer(nn.Module):
    """Convolution, normalisation, ReLU."""

    def __init__(self, inputs: int, outputs: int, size: int = 3, stride: int = 1) -> None:
        super().__init__()
        self.layer = nn.Sequential(
            nn.Conv2d(inputs, outputs, size, stride, padding=size // 2, bias=False),
            nn.BatchNorm2d(outputs, affine=False),
            nn.ReLU(inplace=True),
        )

    def forward(self, x: Tensor) -> Tensor:
        answer: Tensor = self.layer(x)
        return answer


class XFeat(nn.Module):
    """[batch,1,H,W], H and W multiples of 32, to three maps of cells of 8 x 8 pixels.

    These are descriptors [batch,64,H/8,W/8], keypoint logits [batch,65,H/8,W/8] (the 64 pixels of a
    cell, and none of them) and reliability [batch,1,H/8,W/8].
    """

    def __init__(self) -> None:
        super().__init__()
        self.skip1 = nn.Sequential(nn.AvgPool2d(4), nn.Conv2d(1, 24, 1))
        self.block1 = nn.Sequential(
            Layer(1, 4), Layer(4, 8, stride=2), Layer(8, 8), Layer(8, 24, stride=2)
        )
        self.block2 = nn.Sequential(Layer(24, 24), Layer(24, 24))
        self.block3 = nn.Sequential(Layer(24, 64, stride=2), Layer(64, 64), Layer(64, 64, 1))
        self.block4 = nn.Sequential(Layer(64, 64, stride=2), Layer(64, 64), Layer(64, 64))
        self.block5 = nn.Sequential(
            Layer(64, 128, stride=2), Layer(128, 128), Layer(128, 128), Layer(128, 64, 1)
        )
        self.block_fusion = nn.Sequential(Layer(64, 64), Layer(64, 64), nn.Conv2d(64, 64, 1))
        self.heatmap_head = nn.Sequential(
            Layer(64, 64, 1), Layer(64, 64, 1), nn.Conv2d(64, 1, 1), nn.Sigmoid()
        )
        self.keypoint_head = nn.Sequential(
            Layer(64, 64, 1), Layer(64, 64, 1), Layer(64, 64, 1), nn.Conv2d(64, 65, 1)
        )

    def forward(self, image: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        x = _standardise(image)
        x2 = self.block2(self.block1(x) + self.skip1(x))
        x3 = self.block3(x2)
        x4 = self.block4(x3)
        x5 = self.block5(x4)
        pyramid = x3 + _enlarge(x4, 2) + _enlarge(x5, 4)
        feats = self.block_fusion(pyramid)
        cells = functional.pixel_unshuffle(x, CELL)
        return feats, self.keypoint_head(cells), self.heatmap_head(feats)


def _standardise(image: Tensor) -> Tensor:
    """As ``InstanceNorm2d(1)``, which ONNX Runtime sums up with four right digits."""
    centred = image - _mean(image)
    standardised: Tensor = centred / (_mean(centred * centred) + _NORM_EPSILON).sqrt()
    return standardised


def _mean(image: Tensor) -> Tensor:
    """First of rows, then of those: a float32 sum of 307,200 numbers is not exact enough."""
    return image.mean(3, keepdim=True).mean(2, keepdim=True)


def _enlarge(x: Tensor, factor: int) -> Tensor:
    return functional.interpolate(x, scale_factor=factor, mode="bilinear")
