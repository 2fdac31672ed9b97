"""Windows of convolutions and pools: sizes, strides and pads, with automatic padding worked out.

Source of the padding rules: the ONNX operator specification (Conv, ConvTranspose, pooling).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from edgeengine.gradients.rules.table import Node
from edgeengine.gradients.tape import Tensor


@dataclass(frozen=True)
class Windows:
    """Windows of size `kernel` laid over an input of spatial `size`, giving `out` positions per axis.

    `low` and `high` are the pads; position p of an axis reads input[p * stride - low + k * dilation].
    """

    size: tuple[int, ...]
    out: tuple[int, ...]
    kernel: tuple[int, ...]
    stride: tuple[int, ...]
    dilation: tuple[int, ...]
    low: tuple[int, ...]
    high: tuple[int, ...]

    @property
    def rank(self) -> int:
        return len(self.size)

    @property
    def positions(self) -> int:
        return math.prod(self.out)

    @property
    def taps(self) -> int:
        return math.prod(self.kernel)

    @property
    def axes(self) -> list[int]:
        return list(range(2, 2 + self.rank))

    @property
    def reach(self) -> tuple[int, ...]:
        """Pad after the input that the last window really reads; negative where input is left over."""
        rows = zip(self.out, self.stride, self.kernel, self.dilation, self.size, self.low, strict=True)
        return tuple((o - 1) * s + (k - 1) * d + 1 - n - low for o, s, k, d, n, low in rows)

    @property
    def is_tiling(self) -> bool:
        """Whether windows cover the input once, without pads."""
        whole = all(o * k == n for o, k, n in zip(self.out, self.kernel, self.size, strict=True))
        return self.kernel == self.stride and whole and not any(self.low) and set(self.dilation) == {1}

    @property
    def is_pointwise(self) -> bool:
        return self.taps == 1 and set(self.stride) == {1} and not any(self.low) and not any(self.high)

    def offsets(self) -> Iterator[tuple[int, ...]]:
        return iter(np.ndindex(*self.kernel))

    def padded(self, x: Tensor, value: float = 0.0) -> Tensor:
        """The input with the pads that windows read, [N, C, *size + pads]."""
        return x.pad([0, 0, *self.low], [0, 0, *(max(r, 0) for r in self.reach)], value)

    def padded_size(self) -> tuple[int, ...]:
        return tuple(low + n + max(r, 0) for low, n, r in zip(self.low, self.size, self.reach, strict=True))

    def tap(self, padded: Tensor, offset: tuple[int, ...]) -> Tensor:
        """What tap `offset` of every window reads, [N, C, *out]."""
        starts = [o * d for o, d in zip(offset, self.dilation, strict=True)]
        rows = zip(self.axes, starts, self.out, self.stride, strict=True)
        return padded.slices({a: (s, s + (o - 1) * step + 1, step) for a, s, o, step in rows})

    def one_hot(self, channels: int, dtype: str) -> np.ndarray:
        """A depthwise kernel [C * taps, 1, *kernel] whose output c * taps + k is tap k of channel c."""
        eye = np.eye(self.taps, dtype=dtype).reshape(self.taps, 1, *self.kernel)
        return np.tile(eye, (channels, 1, *(1,) * self.rank))


def windows(n: Node, x: Tensor, y: Tensor, kernel: tuple[int, ...]) -> Windows:
    """The windows a Conv or pooling node lays over `x` to give `y`."""
    size, out = tuple(n.sizes(x, range(2, x.rank))), tuple(n.sizes(y, range(2, x.rank)))
    rank = len(size)
    stride, dilation = (tuple(n.attr(k) or (1,) * rank) for k in ("strides", "dilations"))
    pads = tuple(n.attr("pads") or (0,) * (2 * rank))
    low, high = pads[:rank], pads[rank:]
    auto = n.attr("auto_pad", "NOTSET")
    if auto == "VALID":
        low = high = (0,) * rank
    elif auto in ("SAME_UPPER", "SAME_LOWER"):
        rows = zip(size, out, kernel, stride, dilation, strict=True)
        total = [max((o - 1) * s + (k - 1) * d + 1 - i, 0) for i, o, k, s, d in rows]
        low, high = _halves(total, upper=auto == "SAME_UPPER")
    return Windows(size, out, kernel, stride, dilation, low, high)


def transposed_windows(n: Node, x: Tensor, y: Tensor, kernel: tuple[int, ...]) -> Windows:
    """Those of a ConvTranspose node: laid over its output `y`, one per position of its input `x`."""
    size, out = tuple(n.sizes(y, range(2, y.rank))), tuple(n.sizes(x, range(2, x.rank)))
    rank = len(size)
    stride, dilation = (tuple(n.attr(k) or (1,) * rank) for k in ("strides", "dilations"))
    pads = tuple(n.attr("pads") or (0,) * (2 * rank))
    low, high = pads[:rank], pads[rank:]
    extra = tuple(n.attr("output_padding") or (0,) * rank)
    auto = n.attr("auto_pad", "NOTSET")
    if auto in ("SAME_UPPER", "SAME_LOWER") or n.attr("output_shape"):
        rows = zip(size, out, kernel, stride, dilation, extra, strict=True)
        total = [max((o - 1) * s + e + (k - 1) * d + 1 - i, 0) for i, o, k, s, d, e in rows]
        low, high = _halves(total, upper=auto == "SAME_UPPER")
    elif auto == "VALID":
        low = high = (0,) * rank
    return Windows(size, out, kernel, stride, dilation, low, high)


def _halves(total: list[int], upper: bool) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """An odd pad goes after the input for SAME_UPPER, before it otherwise."""
    small, large = tuple(t // 2 for t in total), tuple(t - t // 2 for t in total)
    return (small, large) if upper else (large, small)
