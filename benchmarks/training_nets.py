"""The nets whose training step is timed, as torch modules; imports nothing of ours."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

CLASSES = 10


@dataclass(frozen=True)
class Net:
    """`shape` is one example's; `batch` the usual batch size; `trains_norm` whether batch normalization is in training form."""

    make: Callable[[], nn.Module]
    shape: tuple[int, ...]
    batch: int
    aim_percent: int = 85
    trains_norm: bool = False


def mlp() -> nn.Module:
    return nn.Sequential(nn.Linear(784, 256), nn.ReLU(), nn.Linear(256, 128), nn.ReLU(), nn.Linear(128, CLASSES))


def cnn() -> nn.Module:
    layers: list[nn.Module] = []
    for channels, outputs in ((3, 16), (16, 32), (32, 64)):
        layers += [nn.Conv2d(channels, outputs, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)]
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(64 * 4 * 4, CLASSES))


def cnn_1d() -> nn.Module:
    layers: list[nn.Module] = []
    for channels, outputs, size in ((6, 32, 7), (32, 64, 5), (64, 64, 3)):
        layers += [nn.Conv1d(channels, outputs, size, padding=size // 2), nn.ReLU(), nn.MaxPool1d(2)]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool1d(1), nn.Flatten(), nn.Linear(64, CLASSES))


class Transformer(nn.Module):
    """One block before normalization, four heads, and a classifier on the mean."""

    def __init__(self, width: int = 128, hidden: int = 512, heads: int = 4) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, hidden), nn.Linear(hidden, width)
        self.head = nn.Linear(width, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        q, k, v = self.qkv(self.norm1(x)).reshape(batch, length, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4)
        mixed = ((q @ k.transpose(-1, -2)) * (width // self.heads) ** -0.5).softmax(-1) @ v
        x = x + self.out(mixed.transpose(1, 2).reshape(batch, length, width))
        x = x + self.down(F.gelu(self.up(self.norm2(x))))
        return self.head(x.mean(1))  # type: ignore[no-any-return]


class Inverted(nn.Module):
    def __init__(self, channels: int, outputs: int, stride: int) -> None:
        super().__init__()
        hidden = channels * 4
        self.layers = nn.Sequential(
            nn.Conv2d(channels, hidden, 1, bias=False), nn.BatchNorm2d(hidden), nn.Hardswish(),
            nn.Conv2d(hidden, hidden, 3, stride, 1, groups=hidden, bias=False), nn.BatchNorm2d(hidden), nn.Hardswish(),
            nn.Conv2d(hidden, outputs, 1, bias=False), nn.BatchNorm2d(outputs),
        )  # fmt: skip
        self.same = stride == 1 and channels == outputs

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.layers(x)
        return x + y if self.same else y


def mobilenet() -> nn.Module:
    stem = [nn.Conv2d(3, 16, 3, 2, 1, bias=False), nn.BatchNorm2d(16), nn.Hardswish()]
    blocks = [Inverted(16, 16, 1), Inverted(16, 24, 2), Inverted(24, 24, 1), Inverted(24, 40, 2), Inverted(40, 40, 1)]
    return nn.Sequential(*stem, *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(40, CLASSES))


NETS = {
    "MLP": Net(mlp, (784,), 32),
    "CNN": Net(cnn, (3, 32, 32), 16),
    "1-D CNN": Net(cnn_1d, (6, 360), 32),
    "transformer block": Net(Transformer, (64, 128), 8),
    "MobileNet-style": Net(mobilenet, (3, 48, 48), 16, aim_percent=100, trains_norm=True),
}


def made(name: str) -> nn.Module:
    """With seeded weights and statistics, no two equal: exporters make one of equal ones."""
    torch.manual_seed(0)
    module = NETS[name].make().train(NETS[name].trains_norm)
    with torch.no_grad():
        for tensor in (*module.parameters(), *(b for b in module.buffers() if b.is_floating_point())):
            tensor += 0.01 * torch.rand_like(tensor)
    return module
