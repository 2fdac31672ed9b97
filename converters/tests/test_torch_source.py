"""PyTorch as a source of `edgeengine convert`: what is exported, what is said, and what is never opened."""

import io
import pickle
import zipfile
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="torch is needed to export")

import onnx
import onnxruntime
from edgeengine.conversion import convert
from edgeengine.errors import UserError
from edgeengine.testing import check_converter
from torch import nn

from edgeengine_converters import ConversionError
from edgeengine_converters.program import open_module
from edgeengine_converters.pt2 import open_pt2
from edgeengine_converters.source import TorchConverter

MODULES = """
import torch
from torch import nn
from torch.nn import functional

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.norm, self.drop = nn.Conv1d(2, 4, 3), nn.BatchNorm1d(4), nn.Dropout(0.5)
        self.first, self.second = nn.Linear(4, 4), nn.Linear(4, 4)
        self.second.weight = self.first.weight
    def forward(self, wave, bias):
        hidden = torch.relu(self.norm(self.conv(wave))).mean(2) + bias
        return {"scores": self.second(self.drop(self.first(hidden))), "hidden": hidden}

def net():
    torch.manual_seed(0)
    made = Net()
    for _ in range(4):
        made(3 + 2 * torch.randn(8, 2, 16), torch.zeros(8, 4))
    return made, (torch.randn(1, 2, 16), torch.randn(1, 4))

class Always(nn.Module):
    def forward(self, x):
        return functional.dropout(x)

class Baked(nn.Module):
    def forward(self, x):
        return x.reshape(2, -1)

class Viewed(nn.Module):
    def __init__(self):
        super().__init__()
        self.last = nn.Linear(12, 2)
    def forward(self, x):
        return self.last(x.view(x.size(0), -1))

def always(): return Always(), torch.ones(2, 3)
def baked(): return Baked(), {"x": torch.ones(2, 3, 4)}
def viewed(): return Viewed(), torch.ones(1, 3, 4)
def broken(): raise OSError("no weights here")
def nothing(): return None
def other(): return "net", torch.ones(1)
def numbers(): return Viewed(), (3,)
def number(): return Viewed(), 3
def exits(): raise SystemExit(5)

class Stubborn(nn.Module):
    def eval(self):
        raise RuntimeError("always in training")
    def forward(self, x):
        return x

class Silent(nn.Module):
    def forward(self, x):
        return None

class Nested(nn.Module):
    def forward(self, x):
        return {"a": {"b": x * 2}, "c": [x + 1]}

class Twice(nn.Module):
    def forward(self, x):
        return 2 * x

def stubborn(): return Stubborn(), torch.ones(2, 3)
def silent(): return Silent(), torch.ones(2, 3)
def nested(): return Nested(), torch.ones(2, 3)
def brain(): return Twice(), torch.ones(2, 3, dtype=torch.bfloat16)
def nowhere(): return Twice(), torch.ones(2, 3, device="meta")
def single(): return Twice(), torch.tensor(3.0)
value = 3
"""


@pytest.fixture
def modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    name = f"modules_{abs(hash(tmp_path.name)) % 10**9}"
    (tmp_path / f"{name}.py").write_text(MODULES)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr("edgeengine.conversion.registry.load_converters", lambda: {"torch": TorchConverter()})
    return name


def test_contract(modules: str, tmp_path: Path) -> None:
    check_converter(TorchConverter(), f"{modules}:net", tmp_path)


def test_statistics_names_and_ties_survive(modules: str, tmp_path: Path) -> None:
    """Example of batch 1; trained statistics; two inputs; outputs by the keys of a dict; a weight used twice."""
    done = convert(f"{modules}:net", "net.onnx")
    assert done.free_batch and [c.batch for c in done.checks] == [1, 3, 8]
    assert [(t.name, t.shape) for t in done.inputs] == [("wave", ("batch", 2, 16)), ("bias", ("batch", 4))]
    assert [(t.name, t.shape[0]) for t in done.outputs] == [("scores", "batch"), ("hidden", "batch")]
    assert done.notes == ["the module was in training mode; it was converted in inference mode"]
    assert set(done.tools) == {"torch", "onnx", "onnxscript"}
    weights = {t.name: list(t.dims) for t in onnx.load("net.onnx").graph.initializer}
    assert sum(dims == [4, 4] for dims in weights.values()) == 1, "the tied weight is there once"
    assert {"first.bias", "second.bias"} <= set(weights), "weights keep torch's names"
    assert [p.name for p in tmp_path.glob("net*")] == ["net.onnx"], "one file"
    assert str(tmp_path).encode() not in (tmp_path / "net.onnx").read_bytes()


def test_view_of_the_batch_is_free(modules: str) -> None:
    assert convert(f"{modules}:viewed", "v.onnx").free_batch
    ran = onnxruntime.InferenceSession("v.onnx", providers=["CPUExecutionProvider"])
    assert ran.run(None, {"x": np.ones((5, 3, 4), np.float32)})[0].shape == (5, 2)


def test_outputs_inside_containers_are_numbered(modules: str) -> None:
    assert [t.name for t in convert(f"{modules}:nested", "n.onnx").outputs] == ["output_0", "output_1"]


def test_scalar_example_has_no_batch(modules: str) -> None:
    done = convert(f"{modules}:single", "s.onnx")
    assert not done.free_batch and [t.shape for t in done.inputs] == [()]


def test_batch_that_the_source_fixes_is_said(modules: str) -> None:
    done = convert(f"{modules}:baked", "b.onnx")
    assert not done.free_batch and [c.batch for c in done.checks] == [None] * 3
    assert done.inputs[0].shape == (2, 3, 4) and any("fixes the batch at 2" in text for text in done.notes)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("always", r"dropout \(dropout\) in training form"),
        ("broken", "no weights here"),
        ("nothing", "return .module, example inputs."),
        ("other", "torch.nn.Module"),
        ("numbers", "not all tensors"),
        ("number", "not all tensors"),
        ("exits", "the callable failed .SystemExit: 5."),
        ("stubborn", "inference mode .always in training."),
        ("silent", "returns no tensor"),
        ("brain", "bfloat16"),
        ("nowhere", "on meta"),
        ("absent", "no callable"),
        ("value", "no callable"),
    ],
)
def test_refused(modules: str, name: str, said: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=said) as caught:
        convert(f"{modules}:{name}", "out.onnx")
    assert "\n" not in str(caught.value) and not (tmp_path / "out.onnx").exists()


def test_module_that_is_not_there(modules: str) -> None:
    with pytest.raises(UserError, match="cannot be imported"):
        convert("no_such_module:make", "out.onnx")


def exported(folder: Path, module: nn.Module, free: bool = True) -> Path:
    axes = ({0: torch.export.Dim("n")},) if free else None
    program = torch.export.export(module, (torch.randn(4, 3, 5),), dynamic_shapes=axes)
    torch.export.save(program, folder / "net.pt2")
    return folder / "net.pt2"


@pytest.mark.filterwarnings("ignore")
def test_pt2(modules: str, tmp_path: Path) -> None:
    net = nn.Sequential(nn.Conv1d(3, 4, 3), nn.BatchNorm1d(4), nn.ReLU())
    done = convert(str(exported(tmp_path, net.eval())), "net.onnx")
    assert done.free_batch and done.inputs[0].shape == ("batch", 3, 5)
    fixed = convert(str(exported(tmp_path, net.eval(), free=False)), "net.onnx")
    assert not fixed.free_batch and fixed.inputs[0].shape == (4, 3, 5)
    assert any("fixes the batch" in text for text in fixed.notes)
    with pytest.raises(UserError, match=r"1 \(batch_norm\) in training form"):
        convert(str(exported(tmp_path, net.train())), "net.onnx")


class _Runs:
    """Unpickles by calling a function: what a hostile file would do."""

    def __reduce__(self) -> tuple:
        return (exec, ("raise SystemExit('the file ran code')",))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("part", ["sample_inputs", "weights"])
def test_pt2_runs_no_code(part: str, tmp_path: Path) -> None:
    good = exported(tmp_path, nn.Linear(5, 5))
    hostile = io.BytesIO()
    torch.save(_Runs(), hostile)
    bad = tmp_path / "bad.pt2"
    with zipfile.ZipFile(good) as source, zipfile.ZipFile(bad, "w") as target:
        for name in source.namelist():
            content = source.read(name)
            if part == "sample_inputs" and "/sample_inputs/" in name:
                content = hostile.getvalue()
            if part == "weights" and name.endswith("weights_config.json"):
                content = content.replace(b'"use_pickle": false', b'"use_pickle": true')
                assert b'"use_pickle": true' in content
            if part == "weights" and "/weights/weight_" in name:
                content = hostile.getvalue()
            target.writestr(name, content)
    with pytest.raises(ConversionError, match="only unpickling would open"):
        open_pt2(bad)


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04 damaged", pickle.dumps({"a": 1})])
def test_damaged_pt2(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "net.pt2").write_bytes(content)
    with pytest.raises(ConversionError, match=r"net\.pt2"):
        open_pt2(tmp_path / "net.pt2")


def test_integers_keep_the_values_of_the_example() -> None:
    net = nn.Embedding(5, 2)
    source = open_module("embedding", net, torch.tensor([[0, 4], [3, 1]]))
    for draw, batch in enumerate((1, 3, 8)):
        feeds = source.feeds(batch, draw)
        assert feeds["input"].shape == (batch, 2) and feeds["input"].max() <= 4
        assert source.run(feeds)[0].shape == (batch, 2, 2)
