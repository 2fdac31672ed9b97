"""The committed exercise model: the file is the one the manifest describes and does as well as it says.

Needs onnxruntime and numpy; the accuracy also needs the recordings in seglearn's wheel. Nothing here comes
from the distribution that trained the model: the split is written out again from the manifest.
"""

import hashlib
import json
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
import pytest

onnxruntime = pytest.importorskip("onnxruntime", reason="onnxruntime runs the committed model")

MODELS = Path(__file__).resolve().parents[1] / "src" / "coach" / "models"


@pytest.fixture(scope="module")
def manifest() -> dict[str, Any]:
    return json.loads((MODELS / "exercise.json").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def session(manifest: dict[str, Any]) -> Any:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    return onnxruntime.InferenceSession(str(MODELS / manifest["model"]), options, providers=["CPUExecutionProvider"])


@pytest.fixture(scope="module")
def held_out(manifest: dict[str, Any]) -> list[tuple[np.ndarray, int]]:
    """The recordings [n, 6] and labels of the subject the model has never seen."""
    try:
        path = Path(str(metadata.distribution("seglearn").locate_file("seglearn/data/watch_dataset.npy")))
    except metadata.PackageNotFoundError:
        pytest.skip("seglearn is not installed: pip install --no-deps seglearn==1.2.5")
    if hashlib.sha256(path.read_bytes()).hexdigest() != manifest["data"]["sha256"]:
        pytest.skip("the installed recordings are not those the manifest names")
    # A pickle may run code; the digest above says that this is the file the model was made from.
    table = np.load(path, allow_pickle=True).item()
    return [
        (samples.astype(np.float32), int(label))
        for samples, label, subject in zip(table["X"], table["y"], table["subject"], strict=True)
        if subject == manifest["held_out_subject"]
    ]


def test_file_is_the_one_described(manifest: dict[str, Any]) -> None:
    content = (MODELS / manifest["model"]).read_bytes()
    assert hashlib.sha256(content).hexdigest() == manifest["sha256"]
    assert len(content) == manifest["bytes"] < 1 << 20
    assert manifest["parameters"] < 200_000


def test_nothing_local_is_in_the_files(manifest: dict[str, Any]) -> None:
    for name in (manifest["model"], "exercise.json"):
        content = (MODELS / name).read_bytes()
        for mark in (b"/home/", b"/root/", b"/tmp/", b"/usr/", b"site-packages", b"stack_trace"):
            assert mark not in content, f"{name} holds {mark!r}"


def test_interface(manifest: dict[str, Any], session: Any) -> None:
    (given,), (gives,) = session.get_inputs(), session.get_outputs()
    assert (given.name, given.type, given.shape) == ("window", "tensor(float)", ["batch", 6, 128])
    assert (gives.name, gives.type, gives.shape) == ("logits", "tensor(float)", ["batch", 7])
    assert given.shape == manifest["input"]["shape"] and gives.shape == manifest["output"]["shape"]
    assert manifest["labels"] == ["PEN", "ABD", "FEL", "IR", "ER", "TRAP", "ROW"]
    assert manifest["channels"] == ["ax", "ay", "az", "wx", "wy", "wz"]
    assert (manifest["rate_hz"], manifest["window"]) == (50, 128)


@pytest.mark.parametrize("batch", [1, 3, 8])
def test_any_batch(session: Any, batch: int) -> None:
    windows = np.random.default_rng(batch).normal(size=(batch, 6, 128)).astype(np.float32)
    (together,) = session.run(["logits"], {"window": windows})
    assert together.shape == (batch, 7) and np.isfinite(together).all()
    alone = np.concatenate([session.run(["logits"], {"window": window[None]})[0] for window in windows])
    np.testing.assert_allclose(together, alone, atol=1e-4)


def test_manifest_agrees_with_itself(manifest: dict[str, Any]) -> None:
    accuracy = manifest["accuracy"]
    each = accuracy["per_subject"]
    assert sorted(each, key=int) == [str(subject) for subject in range(1, 11)]
    values = list(each.values())
    assert accuracy["min"] == min(values) and accuracy["max"] == max(values)
    assert accuracy["mean"] == pytest.approx(sum(values) / 10, abs=0.01)
    assert each[str(manifest["held_out_subject"])] == manifest["held_out_accuracy"]
    assert manifest["held_out_partner"] != manifest["held_out_subject"]
    assert len(manifest["export_check"]) >= 3 and "2" not in manifest["export_check"]


def test_accuracy_on_the_held_out_subject(
    manifest: dict[str, Any], session: Any, held_out: list[tuple[np.ndarray, int]]
) -> None:
    windows, labels = [], []
    for samples, label in held_out:
        half = len(samples) // 2
        for start in range(half, len(samples) - 128 + 1, 25):
            windows.append(samples[start : start + 128].T)
            labels.append(label)
    (logits,) = session.run(["logits"], {"window": np.stack(windows)})
    accuracy = 100.0 * float(np.mean(logits.argmax(axis=1) == labels))
    assert accuracy == pytest.approx(manifest["held_out_accuracy"], abs=0.5)
