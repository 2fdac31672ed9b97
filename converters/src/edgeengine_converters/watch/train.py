"""Fits the network: a single thread and a fixed number of epochs, so that one seed gives one result.

Nothing here sees a test window: there is no early stopping and no choice by accuracy.
"""

import copy
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import nn

from edgeengine_converters.errors import ConversionError
from edgeengine_converters.watch.augment import EXCERPT, Augmentation, augment
from edgeengine_converters.watch.data import WINDOW, Windows, train_windows
from edgeengine_converters.watch.net import CHANNEL_COUNT, ExerciseNet, channel_statistics
from edgeengine_converters.watch.source import Recording


@dataclass(frozen=True)
class Recipe:
    """Everything a training depends on besides the recordings."""

    seed: int = 0
    epochs: int = 40
    batch: int = 64
    hop: int = 16
    rate: float = 3e-3
    weight_decay: float = 0.02
    smoothing: float = 0.1
    """Label smoothing."""
    average: float = 0.995
    """Decay of the running average of the weights, taken after each step; the average is what is returned."""
    augmentation: Augmentation = field(default_factory=Augmentation)

    def __post_init__(self) -> None:
        if self.epochs < 1 or self.batch < 2:
            raise ConversionError(
                f"{self.epochs} epochs, batch {self.batch}",
                where="recipe",
                fix="use epochs >= 1 and batch >= 2",
            )


def fit(
    recordings: Iterable[Recording], recipe: Recipe, progress: Callable[[int, float], None] | None = None
) -> ExerciseNet:
    """Trains on the first half of each of `recordings`; returns the network in inference mode.

    `progress` is called after each epoch with the epoch (from 1) and its mean loss. The global random state
    of torch is left as it was. Raises ConversionError when the recordings give no window.
    """
    excerpts = train_windows(recordings, EXCERPT, recipe.hop)
    threads = torch.get_num_threads()
    # The number of threads decides the order of sums, and so the last bits of every weight.
    torch.set_num_threads(1)
    try:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(recipe.seed)
            return _fit(excerpts, recipe, progress)
    finally:
        torch.set_num_threads(threads)


def _fit(excerpts: Windows, recipe: Recipe, progress: Callable[[int, float], None] | None) -> ExerciseNet:
    generator = torch.Generator().manual_seed(recipe.seed)
    values, labels = torch.from_numpy(excerpts.values), torch.from_numpy(excerpts.labels)
    net = ExerciseNet(*channel_statistics(values))
    averaged = copy.deepcopy(net)
    optimizer = torch.optim.AdamW(net.parameters(), lr=recipe.rate, weight_decay=recipe.weight_decay)
    steps = -(-len(values) // recipe.batch)
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, recipe.rate, total_steps=recipe.epochs * steps, pct_start=0.15
    )
    loss_of = nn.CrossEntropyLoss(label_smoothing=recipe.smoothing)
    net.train()
    for epoch in range(1, recipe.epochs + 1):
        order = torch.randperm(len(values), generator=generator)
        # Chunks of nearly equal size: a last batch of one window would break BatchNorm.
        total = 0.0
        for chosen in order.tensor_split(steps):
            loss = loss_of(net(augment(values[chosen], recipe.augmentation, generator)), labels[chosen])
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
            schedule.step()
            _average(averaged, net, recipe.average)
            total += loss.item() * len(chosen)
        if progress is not None:
            progress(epoch, total / len(values))
    return _settle(averaged, values, recipe, generator)


@torch.no_grad()
def _average(averaged: ExerciseNet, net: ExerciseNet, decay: float) -> None:
    for kept, new in zip(averaged.parameters(), net.parameters(), strict=True):
        kept.lerp_(new, 1.0 - decay)


def _settle(
    net: ExerciseNet, values: torch.Tensor, recipe: Recipe, generator: torch.Generator
) -> ExerciseNet:
    """Measures the BatchNorm statistics that belong to the averaged weights, on varied training windows."""
    norms = [module for module in net.modules() if isinstance(module, nn.BatchNorm1d)]
    for norm in norms:
        norm.reset_running_stats()
        norm.momentum = None  # a plain mean over the batches instead of a moving one
    net.train()
    with torch.no_grad():
        order = torch.randperm(len(values), generator=generator)
        for chosen in order.tensor_split(-(-len(values) // 256)):
            net(augment(values[chosen], recipe.augmentation, generator))
    return net.eval()


def logits(net: ExerciseNet, values: np.ndarray) -> np.ndarray:
    """Runs the network: float32 [count, 6, 128] in raw units -> float32 [count, 7].

    Raises ConversionError for another shape.
    """
    if values.ndim != 3 or values.shape[1:] != (CHANNEL_COUNT, WINDOW):
        raise ConversionError(
            f"shape {values.shape}", where="windows", fix=f"pass [count, {CHANNEL_COUNT}, {WINDOW}]"
        )
    net.eval()
    with torch.no_grad():
        result: np.ndarray = net(torch.from_numpy(np.ascontiguousarray(values, dtype=np.float32))).numpy()
    return result
