"""What the export accepts and, above all, what it refuses."""

import pytest

torch = pytest.importorskip("torch", reason="torch is needed to export")
onnx = pytest.importorskip("onnx", reason="onnx is needed to export")

import numpy as np
from onnx import TensorProto, helper

from edgeengine_converters import ConversionError
from edgeengine_converters.export import EXAMPLE_BATCH, Exported, export
from edgeengine_converters.verify import check_structure, differences
from edgeengine_converters.watch.net import ExerciseNet

NAMES = {"name": "small", "input_name": "window", "output_name": "logits"}


def sample(batch: int) -> "torch.Tensor":
    return torch.randn(batch, 6, 128, generator=torch.Generator().manual_seed(batch))


@pytest.fixture(scope="module")
def net() -> ExerciseNet:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        made = ExerciseNet(torch.linspace(-1, 1, 6), torch.linspace(0.5, 2, 6))
        made.train()
        for batch in range(8, 12):  # moves the running statistics away from 0 and 1
            made(3 * sample(batch))
    return made.eval()


@pytest.fixture(scope="module")
def exported(net: ExerciseNet) -> Exported:
    return export(net, sample, batches=(1, 3, 8), **NAMES)


def test_differences_are_small(exported: Exported) -> None:
    assert set(exported.differences) == {1, 3, 8} and EXAMPLE_BATCH not in exported.differences
    assert max(exported.differences.values()) < 1e-5


def test_graph(exported: Exported) -> None:
    model = onnx.load_from_string(exported.content)
    assert model.ir_version <= 10 and 18 <= model.opset_import[0].version <= 20
    check_structure(model, "small", "window", "logits")
    assert model.graph.node[0].op_type == "Sub", "normalisation comes first"
    for mark in (b'File "', b"site-packages", b"stack_trace"):
        assert mark not in exported.content, "the exporter's notes are gone"


class Reshaped(torch.nn.Module):
    """Bakes the batch: the shape is written out."""

    def forward(self, window: "torch.Tensor") -> "torch.Tensor":
        return window.reshape(EXAMPLE_BATCH, -1)[:, :7]


class Counted(torch.nn.Module):
    """Bakes the batch: a size becomes a number."""

    def forward(self, window: "torch.Tensor") -> "torch.Tensor":
        return window.mean(dim=2) + float(window.shape[0])


class Offset(torch.nn.Module):
    """Bakes the batch: a constant of the example's batch."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("offset", torch.ones(EXAMPLE_BATCH, 1, 1))

    def forward(self, window: "torch.Tensor") -> "torch.Tensor":
        return (window + self.offset).mean(dim=2)


@pytest.mark.parametrize(
    "module", [Reshaped(), Counted(), Offset()], ids=lambda module: type(module).__name__
)
def test_baked_batch_is_refused(module: "torch.nn.Module") -> None:
    with pytest.raises(ConversionError, match="batch") as caught:
        export(module, sample, **NAMES)
    assert "\n" not in str(caught.value)


def test_graph_that_runs_at_one_batch_only_is_refused() -> None:
    """A graph may claim a free batch axis and still hold a fixed size: only running it tells."""
    graph = helper.make_graph(
        [helper.make_node("Reshape", ["window", "to"], ["logits"])],
        "fixed",
        [helper.make_tensor_value_info("window", TensorProto.FLOAT, ["batch", 6, 128])],
        [helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["batch", 768])],
        [helper.make_tensor("to", TensorProto.INT64, [2], [EXAMPLE_BATCH, 768])],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)
    flat = torch.nn.Flatten()
    assert differences(model.SerializeToString(), flat, sample, [EXAMPLE_BATCH], "fixed") == {
        EXAMPLE_BATCH: 0.0
    }
    with pytest.raises(ConversionError, match="fixed, batch 3: onnxruntime cannot run it"):
        differences(model.SerializeToString(), flat, sample, [3], "fixed")


def test_other_weights_are_refused(exported: Exported, net: ExerciseNet) -> None:
    with torch.no_grad():
        net.classify.bias[0] += 0.01
        try:
            with pytest.raises(ConversionError, match="small, batch 1: differs from torch by"):
                differences(exported.content, net, sample, [1], "small")
        finally:
            net.classify.bias[0] -= 0.01


def test_training_mode_is_refused(exported: Exported) -> None:
    model = onnx.load_from_string(exported.content)
    node = next(node for node in model.graph.node if node.op_type == "Conv")
    added = helper.make_node(
        "BatchNormalization",
        [node.output[0], "one", "zero", "zero", "one"],
        ["normed", "m", "v"],
        training_mode=1,
    )
    width = next(item.dims[0] for item in model.graph.initializer if item.name == node.input[1])
    for name, value in (("one", 1.0), ("zero", 0.0)):
        model.graph.initializer.append(onnx.numpy_helper.from_array(np.full(width, value, np.float32), name))
    at = list(model.graph.node).index(node) + 1
    model.graph.node.insert(at, added)
    model.graph.node[at + 1].input[0] = "normed"
    with pytest.raises(ConversionError, match="training mode"):
        check_structure(model, "small", "window", "logits")


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"opset": 17}, "opset 17"),
        ({"opset": 21}, "opset 21"),
        ({"batches": (1, 2, 3)}, "check batches"),
        ({"batches": (3, 4)}, "check batches"),
        ({"batches": (0, 3, 4)}, "check batches"),
    ],
)
def test_arguments(net: ExerciseNet, changes: dict, said: str) -> None:
    with pytest.raises(ConversionError, match=said):
        export(net, sample, **NAMES, **changes)


def test_size_limit() -> None:
    with pytest.raises(ConversionError, match="the limit is 1000"):
        export(torch.nn.Conv1d(6, 100, 3), sample, max_bytes=1000, **NAMES)
