"""Varies training windows the way another person, another wrist or another strap would. Training only.

Every change is drawn anew for each window of each epoch, from the generator that is passed in.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from edgeengine_converters.watch.data import WINDOW

EXCERPT = 160
"""Samples in a training excerpt: the longest stretch that a window sped up by `Augmentation.pace` covers."""

# The other wrist is a mirror image of this one. Acceleration is a plain vector, so one axis changes sign;
# angular rate is an axial vector, so the other two do.
_MIRROR = (-1.0, 1.0, 1.0, 1.0, -1.0, -1.0)


@dataclass(frozen=True)
class Augmentation:
    """How far each change goes. Zero (or a probability of zero) switches a change off."""

    mirror: float = 0.5
    """Probability of mirroring to the other wrist."""
    rotation: float = 0.5
    """Standard deviation of the turn of the sensor frame, radians, about a random axis."""
    pace: float = 0.25
    """Largest speed-up or slow-down, as a share of the speed; at most 0.25."""
    scale: float = 0.1
    """Standard deviation of the logarithm of the gain, drawn for each of the two sensors."""
    noise: float = 0.05
    """Standard deviation of white noise, in g and rad/s."""


def augment(excerpts: Tensor, settings: Augmentation, generator: torch.Generator) -> Tensor:
    """Float32 [batch, 6, EXCERPT] in raw units -> varied windows, float32 [batch, 6, WINDOW]."""
    windows = _repace(excerpts, settings.pace, generator)
    count = len(windows)
    flip = torch.rand(count, 1, 1, generator=generator) < settings.mirror
    windows = torch.where(flip, windows * torch.tensor(_MIRROR).view(1, 6, 1), windows)
    turns = _rotations(count, settings.rotation, generator)
    gains = torch.exp(settings.scale * torch.randn(count, 2, 1, 1, generator=generator))
    # Both sensors sit on one board: the same turn moves the two triples, each with its own gain.
    windows = (turns.unsqueeze(1) @ windows.view(count, 2, 3, WINDOW) * gains).view(count, 6, WINDOW)
    return windows + settings.noise * torch.randn(windows.shape, generator=generator)


def _repace(excerpts: Tensor, pace: float, generator: torch.Generator) -> Tensor:
    """Plays each excerpt faster or slower from a random start, and scales the angular rate with the speed."""
    count, channels, length = excerpts.shape
    speed = 1.0 + pace * (2.0 * torch.rand(count, 1, generator=generator) - 1.0)
    room = (length - 1) - speed * (WINDOW - 1)
    start = torch.rand(count, 1, generator=generator) * room
    at = (start + speed * torch.arange(WINDOW)).clamp(0.0, length - 1.001)
    low = at.floor()
    share = (at - low).unsqueeze(1)
    index = low.long().unsqueeze(1).expand(count, channels, WINDOW)
    windows = excerpts.gather(2, index) * (1.0 - share) + excerpts.gather(2, index + 1) * share
    gain = torch.ones(count, channels, 1)
    gain[:, 3:, :] = speed.unsqueeze(2)
    return windows * gain


def _rotations(count: int, deviation: float, generator: torch.Generator) -> Tensor:
    """Random rotation matrices [count, 3, 3] (Rodrigues' formula)."""
    axis = torch.nn.functional.normalize(torch.randn(count, 3, generator=generator), dim=1)
    angle = deviation * torch.randn(count, 1, 1, generator=generator)
    x, y, z = axis.unbind(1)
    zero = torch.zeros(count)
    cross = torch.stack([zero, -z, y, z, zero, -x, -y, x, zero], dim=1).view(count, 3, 3)
    return torch.eye(3) + torch.sin(angle) * cross + (1.0 - torch.cos(angle)) * (cross @ cross)
