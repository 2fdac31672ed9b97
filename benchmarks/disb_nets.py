"""DISB's five networks as small ONNX nets of the same kinds: their blocks in their order, narrower, shallower, on small images.

VGG-19 (Simonyan & Zisserman 2015), ResNet-152 (He et al. 2016), DenseNet-201 (Huang et al. 2017), Inception v3 (Szegedy et al.
2016), DistilBERT (Sanh et al. 2019). Weights are random: only the time they take matters. float32, batch 1, opset 17.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

IMAGE = 64  # pixels a side
TOKENS = 32
CLASSES = 10


class _Net:
    """Adds layer after layer; every method takes and returns tensor names. `channels` of what was made."""

    def __init__(self, shape: tuple[int, ...]):
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []
        self.shape, self.rng = shape, np.random.default_rng(0)
        self.channels = {"x": shape[1]}

    def op(self, kind: str, *inputs: str, **attributes: object) -> str:
        name = f"t{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, list(inputs), [name], **attributes))
        self.channels[name] = self.channels[inputs[0]]
        return name

    def weight(self, *dims: int) -> str:
        name = f"w{len(self.weights)}"
        fan_in = math.prod(dims[1:]) if len(dims) > 2 else dims[0]
        values = self.rng.standard_normal(dims, np.float32) * np.float32(math.sqrt(2 / fan_in))
        self.weights.append(numpy_helper.from_array(values, name))
        return name

    def conv(self, x: str, out: int, size: int = 3, stride: int = 1, relu: bool = True) -> str:
        y = self.op("Conv", x, self.weight(out, self.channels[x], size, size), strides=[stride] * 2, pads=[size // 2] * 4)
        self.channels[y] = out
        return self.op("Relu", y) if relu else y

    def pool(self, x: str, kind: str = "MaxPool") -> str:
        return self.op(kind, x, kernel_shape=[2, 2], strides=[2, 2])

    def joined(self, *parts: str) -> str:
        y = self.op("Concat", *parts, axis=1)
        self.channels[y] = sum(self.channels[p] for p in parts)
        return y

    def dense(self, x: str, out: int, width: int | None = None) -> str:
        y = self.op("MatMul", x, self.weight(width or self.channels[x], out))
        self.channels[y] = out
        return y

    def classified(self, x: str) -> str:
        return self.dense(self.op("Flatten", self.op("GlobalAveragePool", x)), CLASSES, self.channels[x])

    def save(self, y: str, path: Path) -> Path:
        graph = helper.make_graph(
            self.nodes, path.stem,
            [helper.make_tensor_value_info("x", TensorProto.FLOAT, self.shape)],
            [helper.make_tensor_value_info(y, TensorProto.FLOAT, None)], self.weights,
        )  # fmt: skip
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
        onnx.save(onnx.shape_inference.infer_shapes(model), path)
        return path


def vgg(net: _Net, width: int) -> str:
    x = "x"
    for times, repeats in ((1, 2), (2, 2), (4, 4), (8, 4), (8, 4)):
        for _ in range(repeats):
            x = net.conv(x, times * width)
        x = net.pool(x)
    return net.classified(x)


def resnet(net: _Net, width: int) -> str:
    x = net.pool(net.conv("x", width, 7, 2))
    for stage, repeats in enumerate((2, 3, 9, 2)):
        out, middle = width * 6 * 2**stage, width * 3 * 2**stage // 2
        for i in range(repeats):
            stride = 2 if stage and not i else 1
            y = net.conv(net.conv(net.conv(x, middle, 1), middle, 3, stride), out, 1, relu=False)
            x = net.op("Relu", net.op("Add", y, x if i else net.conv(x, out, 1, stride, relu=False)))
    return net.classified(x)


def densenet(net: _Net, width: int) -> str:
    x = net.pool(net.conv("x", 2 * width, 7, 2))
    for block, layers in enumerate((3, 4, 8, 6)):
        if block:
            x = net.pool(net.conv(x, net.channels[x] // 2, 1), "AveragePool")
        for _ in range(layers):
            x = net.joined(x, net.conv(net.conv(x, 4 * width, 1), width))
    return net.classified(x)


def inception(net: _Net, width: int) -> str:
    x = net.pool(net.conv(net.conv("x", width, 3, 2), 2 * width))
    for block, repeats in enumerate((2, 3, 2)):
        if block:
            x = net.pool(x)
        wide = width * 2**block
        for _ in range(repeats):
            factored = net.conv(net.conv(net.conv(x, wide, 1), 2 * wide), 2 * wide)
            x = net.joined(net.conv(x, wide, 1), net.conv(net.conv(x, wide, 1), wide, 5), factored, net.conv(x, wide, 1))
    return net.classified(x)


def bert(net: _Net, width: int) -> str:
    size, heads = 4 * width, 4
    x = net.dense("x", size, size)
    by_head = numpy_helper.from_array(np.array([1, TOKENS, heads, size // heads]), "by_head")
    flat = numpy_helper.from_array(np.array([1, TOKENS, size]), "flat")
    ones = numpy_helper.from_array(np.ones(size, np.float32), "ones")
    net.weights += [by_head, flat, ones]
    for _ in range(6):
        q, k, v = (net.op("Reshape", net.dense(x, size), "by_head") for _ in range(3))
        scores = net.op("MatMul", net.op("Transpose", q, perm=[0, 2, 1, 3]), net.op("Transpose", k, perm=[0, 2, 3, 1]))
        mixed = net.op("MatMul", net.op("Softmax", scores, axis=-1), net.op("Transpose", v, perm=[0, 2, 1, 3]))
        mixed = net.op("Reshape", net.op("Transpose", mixed, perm=[0, 2, 1, 3]), "flat")
        net.channels[mixed] = size
        x = net.op("LayerNormalization", net.op("Add", x, net.dense(mixed, size)), "ones")
        x = net.op("LayerNormalization", net.op("Add", x, net.dense(net.op("Relu", net.dense(x, 4 * size)), size)), "ones")
    return net.dense(x, CLASSES, size)


NETS: dict[str, Callable[[_Net, int], str]] = {
    "vgg": vgg, "resnet": resnet, "densenet": densenet, "inception": inception, "bert": bert,
}  # fmt: skip


def save_net(name: str, width: int, folder: Path) -> Path:
    """The net of `width` channels in its first layers as FOLDER/NAME-WIDTH.onnx."""
    net = _Net((1, TOKENS, 4 * width) if name == "bert" else (1, 3, IMAGE, IMAGE))
    return net.save(NETS[name](net, width), folder / f"{name}-{width}.onnx")
