"""Cases of convolutions, pools, normalizations, recurrent layers and resizing."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F

from tests.gradients.cases import Case, normal
from tests.gradients.operators import one

CONV = {1: F.conv1d, 2: F.conv2d, 3: F.conv3d}
TRANSPOSED = {1: F.conv_transpose1d, 2: F.conv_transpose2d, 3: F.conv_transpose3d}

# channels, outputs, size, kernel, strides, pads, dilations, group
GEOMETRIES: list[tuple[int, int, tuple[int, ...], tuple[int, ...], tuple[int, ...], tuple[int, ...], tuple[int, ...], int]] = [
    (3, 4, (8, 8), (3, 3), (1, 1), (1, 1, 1, 1), (1, 1), 1),
    (3, 4, (8, 9), (3, 3), (2, 2), (1, 1, 1, 1), (1, 1), 1),
    (6, 4, (9, 7), (3, 2), (2, 3), (0, 1, 1, 0), (1, 1), 1),
    (5, 4, (12, 12), (3, 3), (1, 1), (2, 2, 2, 2), (2, 2), 1),
    (3, 4, (13, 12), (3, 3), (2, 2), (1, 1, 1, 1), (2, 2), 1),
    (4, 6, (8, 8), (3, 3), (2, 2), (1, 1, 1, 1), (1, 1), 2),
    (4, 4, (8, 8), (3, 3), (2, 2), (1, 1, 1, 1), (1, 1), 4),
    (4, 4, (8, 8), (3, 3), (1, 1), (1, 1, 1, 1), (1, 1), 4),
    (5, 6, (8, 8), (1, 1), (1, 1), (0, 0, 0, 0), (1, 1), 1),
    (5, 6, (9, 8), (1, 1), (2, 2), (0, 0, 0, 0), (1, 1), 1),
    (4, 8, (6, 6), (3, 3), (1, 1), (1, 1, 1, 1), (1, 1), 4),
    (5, 4, (24, 24), (3, 3), (1, 1), (1, 1, 1, 1), (1, 1), 1),
    (3, 4, (50,), (7,), (2,), (3, 3), (1,), 1),
    (5, 4, (50,), (5,), (1,), (4, 0), (1,), 1),
    (4, 4, (50,), (5,), (3,), (2, 2), (2,), 4),
    (6, 4, (11,), (4,), (3,), (0, 0), (1,), 2),
    (2, 3, (5, 6, 4), (2, 3, 2), (1, 2, 1), (0, 1, 1, 1, 1, 0), (1, 1, 1), 1),
    (6, 4, (9, 9), (2, 2), (4, 4), (0, 0, 0, 0), (1, 1), 1),
    (3, 2, (10, 9), (2, 2), (4, 4), (0, 0, 0, 0), (1, 1), 1),
]


def _padded(x: Any, pads: tuple[int, ...], value: float = 0.0) -> Any:
    rank = len(pads) // 2
    return F.pad(x, [p for q in reversed(range(rank)) for p in (pads[q], pads[rank + q])], value=value)


def convolutions() -> Iterator[Case]:
    for k, (channels, outputs, size, kernel, strides, pads, dilations, group) in enumerate(GEOMETRIES):
        inputs = {
            "X": normal(2, channels, *size),
            "W": normal(outputs, channels // group, *kernel, seed=1),
            "B": normal(outputs, seed=2),
        }
        attributes = {"kernel_shape": kernel, "strides": strides, "pads": pads, "dilations": dilations, "group": group}

        def conv(x: Any, w: Any, b: Any, s: Any = strides, p: Any = pads, d: Any = dilations, g: int = group) -> Any:
            return CONV[w.ndim - 2](_padded(x, p), w, b, stride=s, dilation=d, groups=g)

        forms = [
            "gather",
            *(
                ["columns", "channels", "taps"]
                if group == 1
                else ["taps_depthwise", "columns_depthwise", "rows_depthwise"]
                if group == channels == outputs
                else []
            ),
        ]
        for form in ("", *forms):
            yield one(
                "Conv",
                inputs,
                conv,
                attributes,
                name=f"Conv {k} {form}",
                opset=11 if not form else 20,
                forms={"conv_weight": form},
                tolerance=5e-5,
            )
        yield one("Conv", inputs, conv, attributes, name=f"Conv {k} varying batch", batch=("X",), tolerance=5e-5)
        turned = {
            "X": normal(2, outputs, *(5,) * len(size)),
            "W": normal(outputs, channels // group, *kernel, seed=1),
            "B": normal(channels, seed=2),
        }
        low = pads[: len(size)]
        extra = tuple(min(1, s - 1) for s in strides)
        yield one(
            "ConvTranspose",
            turned,
            lambda x, w, b, s=strides, p=low, d=dilations, g=group, e=extra: TRANSPOSED[w.ndim - 2](x, w, b, s, p, e, g, d),
            {
                "kernel_shape": kernel,
                "strides": strides,
                "pads": (*low, *low),
                "dilations": dilations,
                "group": group,
                "output_padding": extra,
            },
            name=f"ConvTranspose {k}",
            tolerance=5e-5,
        )
    for auto, (strides, kernel) in itertools.product(
        ("SAME_UPPER", "SAME_LOWER", "VALID"), (((2, 2), (3, 3)), ((1, 1), (2, 2)), ((3, 2), (3, 4)))
    ):
        inputs = {"X": normal(2, 3, 9, 8), "W": normal(4, 3, *kernel, seed=1)}

        def same(x: Any, w: Any, s: Any = strides, a: str = auto) -> Any:
            total = [
                max((-(-n // t) - 1) * t + k - n, 0) if a != "VALID" else 0
                for n, t, k in zip(x.shape[2:], s, w.shape[2:], strict=True)
            ]
            low = [t // 2 if a == "SAME_UPPER" else t - t // 2 for t in total]
            return F.conv2d(_padded(x, (*low, *(t - q for t, q in zip(total, low, strict=True)))), w, stride=s)

        yield one(
            "Conv", inputs, same, {"strides": strides, "auto_pad": auto}, name=f"Conv {auto} {strides} {kernel}", tolerance=5e-5
        )


def pools() -> Iterator[Case]:
    for kernel, strides, pads, size, ceil in (
        ((2, 2), (2, 2), (0, 0, 0, 0), (8, 8), 0),
        ((3, 3), (2, 2), (1, 1, 1, 1), (9, 9), 0),
        ((3, 3), (1, 1), (1, 1, 1, 1), (6, 6), 0),
        ((2, 2), (2, 2), (0, 0, 0, 0), (7, 7), 0),
        ((2, 3), (2, 3), (0, 0, 0, 0), (6, 9), 0),
        ((3, 3), (2, 2), (0, 0, 0, 0), (8, 8), 1),
        ((2,), (2,), (0, 0), (16,), 0),
        ((3,), (2,), (1, 1), (15,), 0),
        ((2, 2, 2), (2, 2, 2), (0,) * 6, (4, 6, 4), 0),
    ):
        rank = len(kernel)
        x = normal(2, 3, *size)
        attributes = {"kernel_shape": kernel, "strides": strides, "pads": pads, "ceil_mode": ceil}
        largest = {1: F.max_pool1d, 2: F.max_pool2d, 3: F.max_pool3d}[rank]
        average = {1: F.avg_pool1d, 2: F.avg_pool2d, 3: F.avg_pool3d}[rank]
        low = pads[:rank]
        for opset, batch in ((11, ()), (20, ("X",))):
            yield one(
                "MaxPool",
                {"X": x},
                lambda x, f=largest, k=kernel, s=strides, p=low, c=ceil: f(x, k, s, p, ceil_mode=bool(c)),
                attributes,
                name=f"MaxPool {kernel} {strides} {pads} {size} {opset}",
                opset=opset,
                batch=batch,
            )
            for included in (0, 1):
                if ceil and included:
                    continue
                yield one(
                    "AveragePool",
                    {"X": x},
                    lambda x, f=average, k=kernel, s=strides, p=low, c=ceil, i=included: f(x, k, s, p, bool(c), bool(i)),
                    {**attributes, "count_include_pad": included},
                    name=f"AveragePool {kernel} {strides} {pads} {size} {included} {opset}",
                    opset=opset,
                    batch=batch,
                )
    yield one(
        "MaxPool",
        {"X": normal(1, 2, 9, 9)},
        lambda x: F.max_pool2d(x, 2, 2, dilation=2),
        {"kernel_shape": (2, 2), "strides": (2, 2), "dilations": (2, 2)},
        name="MaxPool dilated",
    )
    for form, size in itertools.product(("resize", "matmul", "spread"), ((8, 6), (10,))):
        kernel, largest = (2,) * len(size), F.max_pool2d if len(size) == 2 else F.max_pool1d
        yield one(
            "MaxPool",
            {"X": normal(2, 3, *size)},
            lambda x, f=largest: f(x, 2),
            {"kernel_shape": kernel, "strides": kernel},
            name=f"MaxPool {size} {form}",
            forms={"repeat": form},
            batch=("X",),
        )
    yield Case(
        "Relu read by MaxPool and Add",
        [
            ("Relu", ["X"], ["R"], {}),
            ("MaxPool", ["R"], ["P"], {"kernel_shape": (2, 2), "strides": (2, 2)}),
            ("ReduceMean", ["R"], ["M"], {}),
            ("Add", ["P", "M"], ["Y"], {}),
        ],
        {"X": normal(2, 3, 8, 8)},
        lambda X: F.max_pool2d(X.relu(), 2) + X.relu().mean(),
    )
    yield Case(
        "MaxPool after Relu",
        [("Relu", ["X"], ["R"], {}), ("MaxPool", ["R"], ["Y"], {"kernel_shape": (2, 2), "strides": (2, 2)})],
        {"X": normal(2, 3, 8, 8)},
        lambda X: F.max_pool2d(X.relu(), 2),
    )
    yield one("GlobalAveragePool", {"X": normal(2, 3, 5, 4)}, lambda x: x.mean((2, 3), keepdim=True))
    yield one("GlobalMaxPool", {"X": normal(2, 3, 5, 4)}, lambda x: torch.amax(x, (2, 3), keepdim=True))
    yield one(
        "GlobalAveragePool", {"X": normal(2, 3, 7)}, lambda x: x.mean(2, keepdim=True), name="GlobalAveragePool 1-D", opset=11
    )


def normalizations() -> Iterator[Case]:
    x = normal(4, 6, 5)
    for axis, form in itertools.product((-1, -2, 1), ("", "plain")):
        shape = x.shape[axis:]
        inputs = {"X": x, "W": normal(*shape, seed=1), "B": normal(*shape, seed=2)}
        yield one(
            "LayerNormalization",
            inputs,
            lambda x, w, b: F.layer_norm(x, w.shape, w, b),
            {"axis": axis},
            name=f"LayerNormalization {axis} {form}",
            forms={"layer_norm": form},
            opset=17 if not form else 20,
        )
    yield one(
        "LayerNormalization",
        {"X": x, "W": normal(5, seed=1)},
        lambda x, w: F.layer_norm(x, w.shape, w),
        name="LayerNormalization without bias",
    )
    yield one(
        "RMSNormalization",
        {"X": x, "W": normal(5, seed=1)},
        lambda x, w: x / (x * x).mean(-1, keepdim=True).add(1e-5).sqrt() * w,
        {"epsilon": 1e-5},
        opset=23,
    )
    mean, variance = normal(6, seed=3), np.abs(normal(6, seed=4)) + 0.5
    channel = {"W": normal(6, seed=1), "B": normal(6, seed=2)}
    for size, opset in itertools.product(((5,), (3, 4), ()), (11, 15)):
        yield one(
            "BatchNormalization",
            {"X": normal(4, 6, *size), **channel},
            lambda x, w, b: F.batch_norm(x, torch.tensor(mean).double(), torch.tensor(variance).double(), w, b, False),
            constants={"mean": mean, "variance": variance},
            name=f"BatchNormalization {size} {opset}",
            opset=opset,
            batch=("X",),
        )
    for size in ((5,), (3, 4)):
        yield one(
            "InstanceNormalization",
            {"X": normal(4, 6, *size), **channel},
            lambda x, w, b: F.instance_norm(x, weight=w, bias=b),
            name=f"InstanceNormalization {size}",
            opset=11,
        )
        yield one(
            "GroupNormalization",
            {"X": normal(4, 6, *size), **channel},
            lambda x, w, b: F.group_norm(x, 3, w, b),
            {"num_groups": 3},
            name=f"GroupNormalization {size}",
            opset=21,
        )
    yield one("LpNormalization", {"X": x}, lambda x: F.normalize(x, dim=1), {"axis": 1})
    yield one("LpNormalization", {"X": x}, lambda x: F.normalize(x, p=1, dim=2), {"axis": 2, "p": 1}, name="LpNormalization 1")
    yield one(
        "MeanVarianceNormalization",
        {"X": normal(2, 3, 4, 4)},
        lambda x: (x - x.mean((0, 2, 3), keepdim=True)) / (x.var((0, 2, 3), unbiased=False, keepdim=True) + 1e-9).sqrt(),
        tolerance=1e-4,
    )


def _recurrent(kind: str, linear: int, turned: bool, both: bool) -> Any:
    gates = {"LSTM": 4, "GRU": 3, "RNN": 1}[kind]
    order = {"LSTM": [0, 2, 3, 1], "GRU": [1, 0, 2], "RNN": [0]}[kind]  # torch's gates out of ONNX's
    module = {"LSTM": torch.lstm, "GRU": torch.gru, "RNN": torch.rnn_tanh}[kind]

    def run(x: Any, w: Any, r: Any, b: Any, h: Any = None, c: Any = None) -> Any:
        size, weights = r.shape[-1], []
        for d in range(w.shape[0]):
            pick = torch.cat([torch.arange(g * size, (g + 1) * size) for g in order])
            weights += [w[d][pick], r[d][pick], b[d][: gates * size][pick], b[d][gates * size :][pick]]
        x = x.flip(0) if turned else x
        zero = torch.zeros(w.shape[0], x.shape[1], size, dtype=x.dtype)
        h = zero if h is None else h
        state = (h, zero if c is None else c) if kind == "LSTM" else h
        y = module(x, state, weights, True, 1, 0.0, False, both, False)[0]
        y = y.flip(0) if turned else y
        return y.reshape(y.shape[0], y.shape[1], w.shape[0], size).permute(0, 2, 1, 3)

    return run


def recurrent() -> Iterator[Case]:
    steps, batch, width, size = 4, 2, 3, 5
    for kind, direction in itertools.product(("LSTM", "GRU", "RNN"), ("forward", "reverse", "bidirectional")):
        gates, d = {"LSTM": 4, "GRU": 3, "RNN": 1}[kind], 2 if direction == "bidirectional" else 1
        inputs = {
            "X": normal(steps, batch, width),
            "W": normal(d, gates * size, width, seed=1) * 0.5,
            "R": normal(d, gates * size, size, seed=2) * 0.5,
            "B": normal(d, 2 * gates * size, seed=3) * 0.3,
        }
        attributes: dict[str, Any] = {"hidden_size": size, "direction": direction}
        if kind == "GRU":
            attributes["linear_before_reset"] = 1
        f = _recurrent(kind, 1, direction == "reverse", d == 2)
        yield one(kind, inputs, f, attributes, name=f"{kind} {direction}", opset=14 if d == 1 else 20, tolerance=5e-5)
        if direction == "forward":
            states = {"H": normal(d, batch, size, seed=4), **({"C": normal(d, batch, size, seed=5)} if kind == "LSTM" else {})}
            order = ["X", "W", "R", "B", "", *states]
            yield one(kind, {**inputs, **states}, f, attributes, name=f"{kind} with states", order=order, tolerance=5e-5)
    inputs = {
        "X": normal(steps, batch, width),
        "W": normal(1, 15, width, seed=1) * 0.5,
        "R": normal(1, 15, size, seed=2) * 0.5,
        "B": normal(1, 30, seed=3) * 0.3,
    }
    yield one("GRU", inputs, None, {"hidden_size": size}, name="GRU reset before", shape=(steps, 1, batch, size))


def resizes() -> Iterator[Case]:
    for scale, mode in itertools.product((2, 3), ("nearest", "linear")):
        torch_mode = {"nearest": "nearest", "linear": "bilinear"}[mode]
        attributes = {
            "mode": mode,
            "coordinate_transformation_mode": "asymmetric" if mode == "nearest" else "half_pixel",
            "nearest_mode": "floor",
        }
        if mode == "linear":
            attributes.pop("nearest_mode")
        scales = np.array([1, 1, scale, scale], np.float32)
        for opset in (11, 13, 19):
            yield (
                one(
                    "Resize",
                    {"X": normal(1, 2, 4, 5)},
                    lambda x, s=scale, m=torch_mode: F.interpolate(x, scale_factor=s, mode=m),
                    attributes,
                    constants={"scales": scales},
                    order=["X", "", "scales"] if opset >= 13 else ["X", "roi", "scales"],
                    name=f"Resize {mode} {scale} {opset}",
                    opset=opset,
                )
                if opset >= 13
                else one(
                    "Resize",
                    {"X": normal(1, 2, 4, 5)},
                    lambda x, s=scale, m=torch_mode: F.interpolate(x, scale_factor=s, mode=m),
                    attributes,
                    constants={"roi": np.zeros(0, np.float32), "scales": scales},
                    name=f"Resize {mode} {scale} {opset}",
                    opset=opset,
                )
            )
    for size, mode in itertools.product(((7, 3), (4, 10)), ("align_corners", "half_pixel")):
        yield one(
            "Resize",
            {"X": normal(1, 2, 4, 5)},
            lambda x, s=size, m=mode: F.interpolate(x, size=s, mode="bilinear", align_corners=m == "align_corners"),
            {"mode": "linear", "coordinate_transformation_mode": mode},
            constants={"sizes": np.array([1, 2, *size], np.int64)},
            order=["X", "", "", "sizes"],
            name=f"Resize {size} {mode}",
        )
    yield one(
        "Resize",
        {"X": normal(1, 2, 9)},
        lambda x: F.interpolate(x, scale_factor=2, mode="linear"),
        {"mode": "linear"},
        constants={"scales": np.array([1, 1, 2], np.float32)},
        order=["X", "", "scales"],
        name="Resize 1-D",
    )
    yield one(
        "Resize",
        {"X": normal(1, 2, 6, 6)},
        lambda x: F.interpolate(x, scale_factor=2, mode="bicubic"),
        {"mode": "cubic", "cubic_coeff_a": -0.75},
        constants={"scales": np.array([1, 1, 2, 2], np.float32)},
        order=["X", "", "scales"],
        name="Resize cubic",
    )
