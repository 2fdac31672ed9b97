"""The gradient of a convolution's weight, in several equal formulations.

Which is fastest depends on the geometry and the provider; `_default` follows measurements on ONNX Runtime's CPU provider,
and a caller may choose another by name (`forms={"conv_weight": name}`), where it applies.

Shapes: x [N, C, *size], dy [N, O, *out], w [O, C/group, *kernel]; N may vary. The result has the shape of w.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from edgeengine.gradients.rules.geometry import Windows
from edgeengine.gradients.rules.products import transposed_product
from edgeengine.gradients.rules.table import Node
from edgeengine.gradients.tape import Tensor

Formulation = Callable[[Tensor, Tensor, Tensor, Windows, int], Tensor]

_LARGE_PLANE = 512  # positions
_FEW_CHANNELS = 4


def weight_gradient(n: Node, x: Tensor, dy: Tensor, w: Tensor, win: Windows, group: int) -> Tensor:
    dy = dy.told((dy.known[0] if dy.known else None, w.shape[0], *win.out))
    x = x.told((x.known[0] if x.known else None, w.shape[1] * group if w.shape[1] else None, *win.size))
    chosen = n.choose("conv_weight", _applicable(x, w, win, group), _default(x, w, win, group))
    return FORMULATIONS[chosen](x, dy, w, win, group).told(w.known)


def _applicable(x: Tensor, w: Tensor, win: Windows, group: int) -> list[str]:
    if group == 1:
        return ["taps", "columns", "channels", "gather"]
    if not group == w.shape[0] == x.shape[1]:
        return ["gather"]
    return ["gather", "taps_depthwise", "columns_depthwise", *(["rows_depthwise"] if win.rank == 2 else [])]


def _default(x: Tensor, w: Tensor, win: Windows, group: int) -> str:
    if group > 1:
        if not group == w.shape[0] == x.shape[1]:
            return "gather"
        if win.rank == 2:
            return "rows_depthwise"
        return "taps_depthwise" if set(win.stride) == {1} else "columns_depthwise"
    if (x.shape[1] or 0) <= _FEW_CHANNELS:
        return "columns"
    if win.taps == 1 or win.rank == 1:
        return "channels"
    return "taps" if win.positions >= _LARGE_PLANE else "gather"


def _columns(x: Tensor, dy: Tensor, w: Tensor, win: Windows, group: int) -> Tensor:
    """All taps at once by one Conv with a constant one-hot kernel, then one product per example."""
    channels, outputs = x.shape[1] or 0, w.shape[0] or 0
    columns = _tap_columns(x, win, channels)
    flat = dy.reshape([0, outputs, win.positions])
    product = flat @ columns.reshape([0, channels * win.taps, win.positions]).transpose([0, 2, 1])
    return product.sum([0], keep=False).reshape_like(w)


def _tap_columns(x: Tensor, win: Windows, channels: int) -> Tensor:
    high = [max(r, 0) for r in win.reach]
    kernel = x.tape.constant(win.one_hot(channels, x.dtype))
    conv = x.tape.emit("Conv", x, kernel, strides=win.stride, dilations=win.dilation, pads=[*win.low, *high], group=channels)
    # Where input is left over, Conv would find more windows than the forward pass had: only for negative reach beyond a stride.
    return conv.slices({a: (0, o, 1) for a, o, r, s in zip(win.axes, win.out, win.reach, win.stride, strict=True) if -r >= s})


def _channels(x: Tensor, dy: Tensor, w: Tensor, win: Windows, group: int) -> Tensor:
    """Channels first: taps stacked as rows, one Gemm over all examples and positions."""
    channels, outputs, spatial = x.shape[1] or 0, w.shape[0] or 0, win.axes
    left = dy.transpose([1, 0, *spatial]).reshape([outputs, -1])
    if win.is_pointwise:
        rows = x.transpose([1, 0, *spatial]).reshape([channels, -1])
    else:
        across = win.padded(x).transpose([1, 0, *spatial])
        rows = x.tape.concat([win.tap(across, o).reshape([channels, -1]) for o in win.offsets()], axis=0)
    product = x.tape.emit("Gemm", left, rows, transB=1)
    return _taps_last(product.reshape([outputs, win.taps, channels]), win).reshape_like(w)


def _taps(x: Tensor, dy: Tensor, w: Tensor, win: Windows, group: int) -> Tensor:
    """One product per tap."""
    channels, outputs = x.shape[1] or 0, w.shape[0] or 0
    padded, flat = win.padded(x), dy.reshape([0, outputs, win.positions])
    parts = []
    for offset in win.offsets():
        tap = win.tap(padded, offset).reshape([0, channels, win.positions])
        parts.append((flat @ tap.transpose([0, 2, 1])).sum([0], keep=False).told((outputs, channels)).unsqueeze([2]))
    return x.tape.concat(parts, axis=2).reshape_like(w)


def _gather(x: Tensor, dy: Tensor, w: Tensor, win: Windows, group: int) -> Tensor:
    """Channels last: one Gather of whole pixels with a constant index, then one product (per group)."""
    channels, outputs = x.shape[1] or 0, w.shape[0] or 0
    pixels = win.padded(x).transpose([0, *win.axes, 1]).reshape([0, int(np.prod(win.padded_size())), channels])
    columns = x.tape.emit("Gather", pixels, x.tape.constant(_pixel_index(win)), axis=1)  # [N, out * taps, C]
    last = dy.transpose([0, *win.axes, 1])
    if group == 1:
        product = transposed_product(last.reshape([-1, outputs]), columns.reshape([-1, win.taps * channels]))
        return _taps_last(product.reshape([outputs, win.taps, channels]), win).reshape_like(w)
    own, each = channels // group, outputs // group
    left = last.reshape([-1, group, each]).transpose([1, 2, 0])
    right = columns.reshape([-1, win.taps, group, own]).transpose([2, 0, 1, 3]).reshape([group, -1, win.taps * own])
    product = (left @ right).reshape([outputs, win.taps, own])
    return _taps_last(product, win).reshape_like(w)


def _pixel_index(win: Windows) -> np.ndarray:
    """Flat pixel of every (position, tap) in the padded input, position-major."""
    flat = np.zeros((1, 1), np.int64)
    rows = zip(win.padded_size(), win.out, win.stride, win.kernel, win.dilation, strict=True)
    for size, out, stride, kernel, dilation in rows:
        axis = np.arange(out)[:, None] * stride + np.arange(kernel)[None] * dilation
        flat = (flat[:, None, :, None] * size + axis[None, :, None, :]).reshape(flat.shape[0] * out, -1)
    return flat.reshape(-1)


def _taps_last(product: Tensor, win: Windows) -> Tensor:
    """[O, taps, C] -> [O, C, taps]."""
    return product.transpose([0, 2, 1]) if win.taps > 1 else product


def _taps_depthwise(x: Tensor, dy: Tensor, w: Tensor, win: Windows, group: int) -> Tensor:
    """One product and sum per tap."""
    padded = win.padded(x)
    parts = [(dy * win.tap(padded, o)).told(dy.known).sum([0, *win.axes], keep=False).unsqueeze([1]) for o in win.offsets()]
    return x.tape.concat(parts, axis=1).reshape_like(w)


def _columns_depthwise(x: Tensor, dy: Tensor, w: Tensor, win: Windows, group: int) -> Tensor:
    """All taps at once by one Conv with a one-hot kernel, then a matrix-vector product per channel."""
    columns = _tap_columns(x, win, group).reshape([0, group, win.taps, win.positions])
    product = columns @ dy.reshape([0, group, win.positions, 1])
    return product.sum([0], keep=False).reshape_like(w)


def _rows_depthwise(x: Tensor, dy: Tensor, w: Tensor, win: Windows, group: int) -> Tensor:
    """Per channel and row of the kernel, one product of all rows of x with all rows of dy: [W, out]. Its entry (a, b) belongs
    to the tap that reads column a for position b; a constant matrix adds up what belongs together. No pads, no taps cut out.
    """
    (height, width), (rows, columns), (stride, _) = win.size, win.out, win.stride
    across, onto = (t.transpose([1, 0, 2, 3]) for t in (x, dy))
    products = []
    for k in range(win.kernel[0]):
        reads = [o * stride + k * win.dilation[0] - win.low[0] for o in range(rows)]
        valid = [o for o, r in enumerate(reads) if 0 <= r < height]
        if not valid:
            products.append(x.tape.constant(np.zeros((group, 1, width * columns), x.dtype)))
            continue
        first, last = valid[0], valid[-1]
        read = across if len(valid) == height else across.slice(2, reads[first], reads[last] + 1, stride)
        given = onto if len(valid) == rows else onto.slice(2, first, last + 1)
        left, right = read.reshape([group, -1, width]), given.reshape([group, -1, columns])
        products.append((left.transpose([0, 2, 1]) @ right).reshape([group, 1, width * columns]))
    return (x.tape.concat(products, axis=1) @ x.tape.constant(_column_taps(win, x.dtype))).reshape_like(w)


def _column_taps(win: Windows, dtype: str) -> np.ndarray:
    """[W * out, kernel width]: 1 where column a is what tap k reads for position b."""
    reads = np.arange(win.out[1])[:, None] * win.stride[1] + np.arange(win.kernel[1]) * win.dilation[1] - win.low[1]
    ones = np.arange(win.size[1])[:, None, None] == reads
    return np.asarray(ones.reshape(-1, win.kernel[1]), dtype)


FORMULATIONS: dict[str, Formulation] = {
    "columns": _columns,
    "channels": _channels,
    "taps": _taps,
    "gather": _gather,
    "taps_depthwise": _taps_depthwise,
    "columns_depthwise": _columns_depthwise,
    "rows_depthwise": _rows_depthwise,
}
