"""Small versions of nets that people fine-tune, as torch modules."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class Residual(nn.Module):
    def __init__(self, channels: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels, outputs, 3, stride, 1, bias=False)
        self.norm1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.norm2 = nn.BatchNorm2d(outputs)
        self.short = (
            nn.Sequential(nn.Conv2d(channels, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))
            if stride > 1
            else nn.Identity()
        )

    def forward(self, x: Tensor) -> Tensor:
        y = self.norm2(self.conv2(F.relu(self.norm1(self.conv1(x)))))
        return F.relu(y + self.short(x))


def resnet() -> nn.Module:
    stem = [nn.Conv2d(3, 8, 3, 1, 1, bias=False), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(3, 2, 1)]
    blocks = [Residual(8, 8, 1), Residual(8, 16, 2), Residual(16, 32, 2)]
    return nn.Sequential(*stem, *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 5))


class Inverted(nn.Module):
    def __init__(self, channels: int, outputs: int, stride: int, act: Callable[[], nn.Module]) -> None:
        super().__init__()
        hidden = channels * 3
        self.layers = nn.Sequential(
            nn.Conv2d(channels, hidden, 1, bias=False), nn.BatchNorm2d(hidden), act(),
            nn.Conv2d(hidden, hidden, 3, stride, 1, groups=hidden, bias=False), nn.BatchNorm2d(hidden), act(),
            nn.Conv2d(hidden, outputs, 1, bias=False), nn.BatchNorm2d(outputs),
        )  # fmt: skip
        self.same = stride == 1 and channels == outputs

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.layers(x)
        return x + y if self.same else y


def mobilenet() -> nn.Module:
    stem = [nn.Conv2d(3, 8, 3, 2, 1, bias=False), nn.BatchNorm2d(8), nn.Hardswish()]
    blocks = [Inverted(8, 8, 1, nn.ReLU6), Inverted(8, 12, 2, nn.Hardswish), Inverted(12, 12, 1, nn.Hardswish)]
    return nn.Sequential(*stem, *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(12, 5))


class UNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.down1, self.down2 = nn.Conv2d(1, 8, 3, 1, 1), nn.Conv2d(8, 16, 3, 1, 1)
        self.bottom, self.up = nn.Conv2d(16, 16, 3, 1, 1), nn.ConvTranspose2d(16, 8, 2, 2)
        self.join, self.out = nn.Conv2d(16, 8, 3, 1, 1), nn.Conv2d(8, 2, 1)

    def forward(self, x: Tensor) -> Tensor:
        first = F.relu(self.down1(x))
        y = F.relu(self.bottom(F.relu(self.down2(F.max_pool2d(first, 2)))))
        y = F.relu(self.join(torch.cat([self.up(y), first], 1)))
        return self.out(F.interpolate(F.avg_pool2d(y, 2), scale_factor=2.0, mode="bilinear") + y[:, :8])  # type: ignore[no-any-return]


class Recurrent(nn.Module):
    def __init__(self, kind: type[nn.RNNBase], bidirectional: bool) -> None:
        super().__init__()
        self.cell: Any = kind(6, 10, batch_first=True, bidirectional=bidirectional)
        self.head = nn.Linear(20 if bidirectional else 10, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.cell(x)[0].mean(1))  # type: ignore[no-any-return]


class Block(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        q, k, v = self.qkv(self.norm1(x)).reshape(batch, length, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4)
        scores = (q @ k.transpose(-1, -2)) * (width // self.heads) ** -0.5
        mixed = (scores.softmax(-1) @ v).transpose(1, 2).reshape(batch, length, width)
        x = x + self.out(mixed)
        return x + self.down(F.gelu(self.up(self.norm2(x))))  # type: ignore[no-any-return]


class Encoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed, self.place = nn.Embedding(20, 16), nn.Parameter(torch.randn(1, 7, 16) * 0.1)
        self.blocks = nn.Sequential(*(Block(16, 2) for _ in range(4)))
        self.norm, self.head = nn.LayerNorm(16), nn.Linear(16, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.norm(self.blocks(self.embed(x) + self.place)).mean(1))  # type: ignore[no-any-return]


class ViT(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.patch = nn.Conv2d(3, 16, 4, 4)
        self.token, self.place = nn.Parameter(torch.randn(1, 1, 16)), nn.Parameter(torch.randn(1, 17, 16) * 0.1)
        self.blocks = nn.Sequential(*(Block(16, 2) for _ in range(2)))
        self.head = nn.Linear(16, 5)

    def forward(self, x: Tensor) -> Tensor:
        y = self.patch(x).flatten(2).transpose(1, 2)
        y = torch.cat([self.token.expand(x.shape[0], -1, -1), y], 1) + self.place
        return self.head(self.blocks(y)[:, 0])  # type: ignore[no-any-return]


def mlp() -> nn.Module:
    return nn.Sequential(nn.Linear(12, 16), nn.GELU(), nn.LayerNorm(16), nn.Linear(16, 16), nn.Tanh(), nn.Linear(16, 4))


def watch() -> nn.Module:
    layers = [nn.Conv1d(6, 12, 7, 2, 3), nn.ReLU(), nn.MaxPool1d(2), nn.Conv1d(12, 16, 5, 1, 2), nn.ReLU(), nn.MaxPool1d(2)]
    return nn.Sequential(*layers, nn.Conv1d(16, 16, 3, 1, 1), nn.ReLU(), nn.AdaptiveAvgPool1d(1), nn.Flatten(), nn.Linear(16, 4))


# Name -> (module, shape of one example, classes, batch normalization updates its statistics).
NETS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...], int, bool]] = {
    "mlp": (mlp, (12,), 4, False),
    "watch CNN": (watch, (6, 64), 4, False),
    "ResNet, frozen BN": (resnet, (3, 16, 16), 5, False),
    "ResNet, training BN": (resnet, (3, 16, 16), 5, True),
    "MobileNet, frozen BN": (mobilenet, (3, 16, 16), 5, False),
    "MobileNet, training BN": (mobilenet, (3, 16, 16), 5, True),
    "U-Net": (UNet, (1, 16, 16), 2, False),
    "GRU": (lambda: Recurrent(nn.GRU, False), (9, 6), 4, False),
    "LSTM": (lambda: Recurrent(nn.LSTM, True), (9, 6), 4, False),
    "encoder": (Encoder, (7,), 3, False),
    "ViT": (ViT, (3, 16, 16), 5, False),
}
