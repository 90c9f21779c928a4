"""The two convolutional networks of the paper's experiments (Appendix B), for images of any size.

Convolutions have no bias, because the batch normalization that follows would cancel it.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from uulearn.models.dense import HiddenLayers, he_normal_, output_layer

FULL_TILE = 64
"""Number of channels that fill one tensor-core tile on a GPU."""


class PackedConv2d(nn.Conv2d):
    """3×3 convolution equivalent to ``nn.Conv2d`` that packs neighboring pixels to use tensor cores efficiently.

    In the channels-last layout, four neighboring pixels with 16 channels have the memory layout of one pixel with 64
    channels, the width of a tensor-core tile. A convolution of this packed image fills the tiles; the packed kernel
    contains the original weights and zeros. Packing is used on CUDA if the packing factor divides the image width.
    """

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__(inputs, outputs, 3, padding=1, bias=False)
        self.packing = max(1, FULL_TILE // max(inputs, outputs))

    def _packed_kernel(self) -> Tensor:
        """Return the kernel for packed images, in which k neighboring pixels form one pixel."""
        k = self.packing
        outputs, inputs = self.weight.shape[:2]
        # Pixel q of the packed neighbor j lies k·(j − 1) + q − p + 1 columns into the kernel of pixel p.
        padded = F.pad(self.weight, (2 * k - 2, 2 * k - 2))
        offset = torch.arange(3, device=self.weight.device) * k - k + 1
        p, q = torch.arange(k, device=self.weight.device), torch.arange(k, device=self.weight.device)
        column = offset[None, None, :] + q[None, :, None] - p[:, None, None] + 2 * k - 2  # (p, q, j)
        kernel = padded[..., column]  # (outputs, inputs, 3, p, q, j)
        return kernel.permute(3, 0, 4, 1, 2, 5).reshape(k * outputs, k * inputs, 3, 3)

    def forward(self, x: Tensor) -> Tensor:
        """Apply the convolution; the result is the same as that of `torch.nn.Conv2d`."""
        packs = x.is_cuda and self.packing > 1 and x.shape[3] % self.packing == 0
        return self._convolve_packed(x) if packs else super().forward(x)

    def _convolve_packed(self, x: Tensor) -> Tensor:
        k = self.packing
        n, channels, height, width = x.shape
        packed = x.permute(0, 2, 3, 1).reshape(n, height, width // k, k * channels).permute(0, 3, 1, 2)
        out = F.conv2d(packed, self._packed_kernel(), padding=1)
        return out.permute(0, 2, 3, 1).reshape(n, height, width, self.out_channels).permute(0, 3, 1, 2)


def _convolution(inputs: int, outputs: int, size: int, stride: int = 1) -> nn.Conv2d:
    layer: nn.Conv2d
    if size == 3 and stride == 1 and max(inputs, outputs) < FULL_TILE:
        layer = PackedConv2d(inputs, outputs)
    else:
        layer = nn.Conv2d(inputs, outputs, size, stride=stride, padding=size // 2, bias=False)
    he_normal_(layer.weight)
    return layer


class AllConvNet(HiddenLayers):
    """All-convolutional network with twelve layers, used for Figure 1 of the paper.

    [C(3×3, 96)]×2 – C(3×3, 96, stride 2) – [C(3×3, 192)]×2 – C(3×3, 192, stride 2) – C(3×3, 192) – C(1×1, 192) –
    C(1×1, 10) – 1000 – 1000 – 1, each hidden layer followed by batch normalization and ReLU. ``shape`` is the shape of
    an image, and ``momentum`` is defined as in PyTorch's batch normalization (0.99 in Keras corresponds to 0.01).

    >>> AllConvNet()(torch.zeros(2, 3, 32, 32)).shape
    torch.Size([2])
    """

    prefers_channels_last = True

    def __init__(self, shape: tuple[int, int, int] = (3, 32, 32), momentum: float = 0.01, eps: float = 1e-3) -> None:
        super().__init__()
        channels, height, width = shape
        layers: list[nn.Module] = []
        for outputs, size, stride in (
            (96, 3, 1), (96, 3, 1), (96, 3, 2), (192, 3, 1), (192, 3, 1), (192, 3, 2), (192, 3, 1), (192, 1, 1),
            (10, 1, 1),
        ):  # fmt: skip
            layers += [_convolution(channels, outputs, size, stride), nn.BatchNorm2d(outputs, eps, momentum), nn.ReLU()]
            channels = outputs
        layers.append(nn.Flatten())
        columns = channels * -(-height // 4) * -(-width // 4)
        for outputs in (1000, 1000):
            linear = nn.Linear(columns, outputs, bias=False)
            he_normal_(linear.weight)
            layers += [linear, nn.BatchNorm1d(outputs, eps, momentum), nn.ReLU()]
            columns = outputs
        self.hidden = nn.Sequential(*layers)
        self.output = output_layer(columns, he_normal_)


class ResidualBlock(nn.Module):
    """Residual block with two convolutions; the shortcut has a 1×1 convolution if the shape of the output differs."""

    def __init__(self, inputs: int, outputs: int, stride: int, momentum: float, eps: float) -> None:
        super().__init__()
        self.norm1 = nn.BatchNorm2d(inputs, eps, momentum)
        self.conv1 = _convolution(inputs, outputs, 3, stride)
        self.norm2 = nn.BatchNorm2d(outputs, eps, momentum)
        self.conv2 = _convolution(outputs, outputs, 3)
        self.shortcut = _convolution(inputs, outputs, 1, stride) if stride > 1 or inputs != outputs else None

    def forward(self, x: Tensor) -> Tensor:
        """Map images of shape (n, inputs, h, w) to images of shape (n, outputs, h/stride, w/stride)."""
        active = F.relu(self.norm1(x))
        out: Tensor = self.conv2(F.relu(self.norm2(self.conv1(active))))
        return (x if self.shortcut is None else self.shortcut(active)) + out


class ResNet32(HiddenLayers):
    """The paper's 32-layer pre-activation residual network; the arguments are the same as for `AllConvNet`.

    C(3×3, 16) – [C(3×3, 16), C(3×3, 16)]×5 – [C(3×3, 32), C(3×3, 32)]×5 – [C(3×3, 64), C(3×3, 64)]×5 – global average
    pooling – 1. The first blocks of the second and third groups halve the height and width.

    >>> ResNet32(shape=(3, 32, 32))(torch.zeros(2, 3, 32, 32)).shape
    torch.Size([2])
    """

    prefers_channels_last = True

    def __init__(self, shape: tuple[int, int, int] = (3, 32, 32), momentum: float = 0.01, eps: float = 1e-3) -> None:
        super().__init__()
        self.stem = _convolution(shape[0], 16, 3)
        blocks: list[nn.Module] = []
        channels = 16
        for outputs in (16, 32, 64):
            for position in range(5):
                stride = 2 if position == 0 and outputs > 16 else 1
                blocks.append(ResidualBlock(channels, outputs, stride, momentum, eps))
                channels = outputs
        self.blocks = nn.Sequential(*blocks)
        self.norm = nn.BatchNorm2d(channels, eps, momentum)
        self.output = output_layer(channels, he_normal_)

    def features(self, x: Tensor) -> Tensor:
        """Return the mean of each of the 64 channels over the image."""
        x = F.relu(self.norm(self.blocks(self.stem(x))))
        return x.mean((2, 3), dtype=self.output.weight.dtype)
