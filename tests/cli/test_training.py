"""Two moons, from the command line to a served version."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import onnx
import pytest

from edgeengine.bundle import open_bundle
from edgeengine.training import inference_session
from edgeengine.training.state import read_tensors
from tests.gradients.nets import mlp, two_moons


@pytest.fixture
def moons(tmp_path: Path) -> tuple[np.ndarray, np.ndarray]:
    onnx.save(mlp(), tmp_path / "mlp.onnx")
    x, label = two_moons(600)
    np.savez(tmp_path / "moons.npz", x=x, label=label)
    return x, label


def test_two_moons_are_learned_and_served(moons: tuple[np.ndarray, np.ndarray], cli: Any) -> None:
    made = cli("trainable", "mlp.onnx", "-o", "mlp.edge", "--json")
    assert made.code == 0, made.err
    report = msgspec.json.decode(made.out)
    assert len(report["parameters"]) == 8 and report["operators_on_path"]["Gelu"] == 2
    assert "before the final Softmax" in made.err
    assert [m["name"] for m in report["micro_steps"]] == ["gradient", "optimizer"]
    assert all(m["latency_ms"] > 0 for m in report["micro_steps"])
    done = cli("finetune", "mlp.edge", "--data", "moons.npz", "--steps", 300, "--lr", 1, "--json")
    assert done.code == 0, done.err
    result = msgspec.json.decode(done.out)
    assert result["steps"] == 300 and result["loss_last"] < result["loss_first"]
    assert result["metric_before"] < 0.9 and result["metric_after"] >= 0.97
    # The bundle opened anew, with that version: the same accuracy on the same hold-out.
    x, label = moons
    kept = np.random.default_rng(0).permutation(600)[:120]
    session = inference_session(open_bundle("mlp.edge"), read_tensors(result["file"]))
    assert float((session.run(None, {"x": x[kept]})[0].argmax(1) == label[kept]).mean()) == result["metric_after"]
    again = cli("finetune", "mlp.edge", "--data", "moons.npz", "--steps", 2, "--lr", 0.0001, "--resume", "--json")
    assert again.code == 0, again.err
    assert msgspec.json.decode(again.out)["metric_before"] == result["metric_after"]


def test_what_was_kept_is_rehearsed_and_guards(moons: tuple[np.ndarray, np.ndarray], cli: Any) -> None:
    x, label = moons
    np.savez("wrong.npz", x=x[:200], label=1 - label[:200])
    assert cli("trainable", "mlp.onnx", "-o", "mlp.edge").code == 0
    learn = ("finetune", "mlp.edge", "--store-kb", 64, "--lr", 0.01, "--json")
    first = msgspec.json.decode(cli(*learn, "--data", "moons.npz", "--steps", 300).out)
    assert first["serves"] and first["kept_before"] is None
    more = msgspec.json.decode(cli(*learn, "--data", "moons.npz", "--steps", 20, "--resume", "--rehearse", 16).out)
    assert more["serves"] and more["kept_after"] >= more["kept_before"] - 0.02
    bad = msgspec.json.decode(cli(*learn, "--data", "wrong.npz", "--steps", 100, "--resume").out)
    assert not bad["serves"] and bad["kept_after"] < bad["kept_before"] - 0.1


BAD = {
    "rehearsing nothing": (["finetune", "mlp.edge", "--data", "moons.npz", "--rehearse", "4"], "needs a store"),
    "unknown parameter": (["trainable", "mlp.onnx", "-o", "new.edge", "--train", "fc.weight"], "fc.weight"),
    "unknown loss": (["trainable", "mlp.onnx", "-o", "new.edge", "--loss", "hinge"], "hinge"),
    "unknown batch norm": (["trainable", "mlp.onnx", "-o", "new.edge", "--batch-norm", "on"], "on"),
    "micro-batch": (["trainable", "mlp.onnx", "-o", "new.edge", "--micro-batch", "0"], "--micro-batch 0"),
    "micro-step": (["trainable", "mlp.onnx", "-o", "new.edge", "--max-micro-step-ms", "0.0001"], "parts under 0.0001 ms"),
    "class weights": (["trainable", "mlp.onnx", "-o", "new.edge", "--class-weights", "a,b"], "a,b"),
    "no bundle": (["finetune", "none.edge", "--data", "moons.npz"], "edgeengine trainable MODEL.onnx -o none.edge"),
    "a model, no bundle": (["finetune", "mlp.onnx", "--data", "moons.npz"], "edgeengine trainable"),
    "no data": (["finetune", "mlp.edge", "--data", "none.npz"], "none.npz"),
    "no steps": (["finetune", "mlp.edge", "--data", "moons.npz", "--steps", "0"], "steps 0"),
    "a budget without a unit": (["finetune", "mlp.edge", "--data", "moons.npz", "--budget", "30"], "give a time or an energy"),
    "an energy without power": (["finetune", "mlp.edge", "--data", "moons.npz", "--budget", "30J"], "needs --watts"),
    "steps and a budget": (["finetune", "mlp.edge", "--data", "moons.npz", "--budget", "1s", "--steps", "5"], "one of them"),
    "negative warm-up": (["finetune", "mlp.edge", "--data", "moons.npz", "--warmup", "-1"], "warmup -1"),
    "negative seed": (["finetune", "mlp.edge", "--data", "moons.npz", "--seed", "-1"], "seed -1"),
    "margin that is no number": (["finetune", "mlp.edge", "--data", "moons.npz", "--margin", "nan"], "margin nan"),
    "negative margin": (["finetune", "mlp.edge", "--data", "moons.npz", "--margin", "-0.1"], "margin -0.1"),
    "a store beyond all memory": (["finetune", "mlp.edge", "--data", "moons.npz", "--store-kb", str(10**14)], "give less"),
    "label out of range": (["finetune", "mlp.edge", "--data", "far.npz"], "out of range"),
    "diverging": (["finetune", "mlp.edge", "--data", "huge.npz"], "the loss is nan"),
}


def test_bad_input_is_one_line_and_no_version(moons: tuple[np.ndarray, np.ndarray], cli: Any, tmp_path: Path) -> None:
    x, label = moons
    np.savez(tmp_path / "far.npz", x=x, label=label + 1)
    np.savez(tmp_path / "huge.npz", x=np.where(x > 1, np.inf, x), label=label)
    assert cli("trainable", "mlp.onnx", "-o", "mlp.edge").code == 0
    for case, (arguments, word) in BAD.items():
        done = cli(*arguments)
        assert done.code == 2, (case, done.err)
        line = done.err.strip().splitlines()[-1]
        assert done.out == "" and line.startswith("edgeengine: ") and word in line, (case, done.err)
    assert not (tmp_path / "new.edge").exists()
    assert not list((tmp_path / "state").rglob("*.safetensors"))


def test_bundle_without_training_graphs_says_how_to_make_them(moons: tuple[np.ndarray, np.ndarray], cli: Any) -> None:
    assert cli("build", "mlp.onnx", "-o", "plain.edge").code == 0
    done = cli("finetune", "plain.edge", "--data", "moons.npz")
    assert done.code == 2 and "edgeengine trainable" in done.err
