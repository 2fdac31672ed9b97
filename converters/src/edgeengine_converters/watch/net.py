"""The network: a plain stack of Conv1d, BatchNorm and ReLU, averaged over time."""

from torch import Tensor, nn

CHANNEL_COUNT = 6
CLASS_COUNT = 7


class Normalise(nn.Module):
    """(x - mean) / deviation per channel, inside the graph: whoever runs the model feeds raw sensor units.

    Input and output are float32 [batch, channels, time]; `mean` and `deviation` are float32 [channels].
    """

    mean: Tensor
    scale: Tensor

    def __init__(self, mean: Tensor, deviation: Tensor) -> None:
        super().__init__()
        self.register_buffer("mean", mean.float().view(1, -1, 1))
        self.register_buffer("scale", 1.0 / deviation.float().view(1, -1, 1))

    def forward(self, values: Tensor) -> Tensor:
        return (values - self.mean) * self.scale


class ExerciseNet(nn.Module):
    """Raw window, float32 [batch, 6, 128] (g, rad/s) -> logits, float32 [batch, 7]."""

    def __init__(
        self,
        mean: Tensor,
        deviation: Tensor,
        widths: tuple[int, ...] = (32, 64, 96, 128),
        kernels: tuple[int, ...] = (7, 5, 5, 3),
        strides: tuple[int, ...] = (1, 2, 2, 2),
        dropout: float = 0.3,
    ) -> None:
        super().__init__()
        layers: list[nn.Module] = [Normalise(mean, deviation)]
        previous = CHANNEL_COUNT
        for width, kernel, stride in zip(widths, kernels, strides, strict=True):
            # No bias: BatchNorm would subtract it again.
            layers += [
                nn.Conv1d(previous, width, kernel, stride=stride, padding=kernel // 2, bias=False),
                nn.BatchNorm1d(width),
                nn.ReLU(),
            ]
            previous = width
        self.features = nn.Sequential(*layers)
        self.dropout = nn.Dropout(dropout)
        self.classify = nn.Linear(previous, CLASS_COUNT)

    def forward(self, window: Tensor) -> Tensor:
        logits: Tensor = self.classify(self.dropout(self.features(window).mean(dim=2)))
        return logits


def parameter_count(module: nn.Module) -> int:
    """Trained numbers in `module`; running statistics and the normalisation constants are not counted."""
    return sum(parameter.numel() for parameter in module.parameters() if parameter.requires_grad)


def channel_statistics(windows: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and standard deviation of each channel: [count, channels, time] -> two of [channels]."""
    flat = windows.double().transpose(0, 1).reshape(windows.shape[1], -1)
    return flat.mean(dim=1).float(), flat.std(dim=1, correction=0).clamp_min(1e-6).float()
