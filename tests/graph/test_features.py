"""What a graph asks of a processor, counted as the tables of measurements count it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from edgeengine.graph import load_model
from edgeengine.graph.features import features_of
from edgeengine.graph.study import Study, study
from edgeengine.spec.features import Features
from tests.models import installed_file, model_file
from tools.profiles.costs import features_of as from_table
from tools.profiles.tables import read

WITHIN = 0.03
# The light nets of the onnx package, and what the tables call the same network (profiles/measured/model_features.csv).
SAME = {"resnet50": "tv/resnet50@224", "squeezenet": "tv/squeezenet1_1@224"}


def whole(seen: Study) -> Features:
    return features_of(seen, range(len(seen.flow.nodes)))


@pytest.mark.parametrize("net", SAME)
def test_light_nets_ask_for_what_the_table_says(net: str) -> None:
    file = installed_file("onnx", f"onnx/backend/test/data/light/light_{net}.onnx")
    ours = whole(study(load_model(file)))
    table = from_table(next(r for r in read("model_features") if r["model_key"] == SAME[net]))
    for what in ("macs", "dense", "pointwise", "fc", "parameters", "read", "written", "convolutions", "matmuls"):
        assert getattr(ours, what) == pytest.approx(getattr(table, what), rel=WITHIN), what
    assert ours.depthwise == table.depthwise == 0


@pytest.mark.parametrize("model", ["magika", "orientation", "ocr-direction"])
def test_work_of_the_parts_is_the_work_of_the_whole(model: str) -> None:
    """Only weights that several parts read count once in each."""
    seen = study(load_model(model_file(model)))
    nodes = np.arange(len(seen.flow.nodes))
    for parts in (2, 3, 7):
        total = sum((features_of(seen, map(int, p)) for p in np.array_split(nodes, parts)), Features())
        exact, most = whole(seen), total.parameters
        assert most >= exact.parameters
        assert [v for n, v in each(total) if n != "parameters"] == [v for n, v in each(exact) if n != "parameters"]


def each(features: Features) -> list[tuple[str, int]]:
    return [(name, getattr(features, name)) for name in features.__struct_fields__]


def conv(tmp_path: Path, group: int, kernel: int, out: int = 8) -> Features:
    weight = numpy_helper.from_array(np.ones((out, 8 // group, kernel, kernel), np.float32), "w")
    node = helper.make_node("Conv", ["x", "w"], ["c"], group=group, pads=[kernel // 2] * 4)
    relu = helper.make_node("Relu", ["c"], ["y"])
    x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in (("x", (1, 8, 6, 6)), ("y", (1, out, 6, 6))))
    graph = helper.make_graph([node, relu], "g", [x], [y], [weight])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), tmp_path / "m.onnx")
    return whole(study(load_model(tmp_path / "m.onnx")))


@pytest.mark.parametrize(
    ("group", "kernel", "kind"), [(1, 3, "dense"), (1, 1, "pointwise"), (2, 3, "grouped"), (8, 3, "depthwise")]
)
def test_convolutions_by_class(tmp_path: Path, group: int, kernel: int, kind: str) -> None:
    found = conv(tmp_path, group, kernel)
    assert found.macs == getattr(found, kind) == 8 * 36 * (8 // group) * kernel**2
    assert (found.convolutions, found.depthwise_convolutions) == (1, int(kind == "depthwise"))
    assert found.operators == 1  # the Relu is part of the convolution
    assert (found.read, found.written) == (8 * 36, 8 * 36)
