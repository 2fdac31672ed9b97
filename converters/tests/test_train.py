"""Training on a small made-up data set: repeatable, blind to the test half, and the command line."""

import hashlib
import json
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="torch is needed to train")
pytest.importorskip("onnx", reason="onnx is needed to export")

from edgeengine_converters import ConversionError
from edgeengine_converters.watch import artefact, data, source
from edgeengine_converters.watch.__main__ import main
from edgeengine_converters.watch.augment import EXCERPT, Augmentation, augment
from edgeengine_converters.watch.net import ExerciseNet, channel_statistics, parameter_count
from edgeengine_converters.watch.train import Recipe, fit, logits

LABELS = ["PEN", "ABD", "FEL", "IR", "ER", "TRAP", "ROW"]
QUICK = Recipe(epochs=2, batch=8, hop=60)


def table() -> dict:
    """Ten subjects, seven exercises, each twice as fast as the one before, one wrist: easy to tell apart."""
    rng = np.random.default_rng(0)
    chosen = [(subject, label) for subject in range(1, 11) for label in range(7)]
    time = np.arange(340)[:, None] / 50.0
    waves = [
        np.sin(2 * np.pi * 0.3 * 2**label * time + np.arange(6)) + 0.1 * rng.normal(size=(340, 6))
        for _, label in chosen
    ]
    return {
        "X": waves,
        "y": np.array([label for _, label in chosen]),
        "subject": np.array([subject for subject, _ in chosen]),
        "side": np.zeros(len(chosen)),
        "X_labels": list(source.CHANNELS),
        "y_labels": LABELS,
    }


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("data") / "watch.npy"
    np.save(made, np.array(table(), dtype=object), allow_pickle=True)
    return made


@pytest.fixture(scope="module")
def recordings(path: Path) -> source.Recordings:
    return source.read(path)


def weights(net: ExerciseNet) -> np.ndarray:
    return np.concatenate([value.detach().double().numpy().ravel() for value in net.state_dict().values()])


def test_same_seed_same_weights(recordings: source.Recordings) -> None:
    kept = data.training_recordings(recordings.items, 1)
    state = torch.random.get_rng_state()
    first, again = fit(kept, QUICK), fit(kept, QUICK)
    other = fit(kept, Recipe(epochs=2, batch=8, hop=60, seed=1))
    assert np.array_equal(weights(first), weights(again))
    assert not np.array_equal(weights(first), weights(other))
    assert torch.equal(state, torch.random.get_rng_state()), "the caller's random state is left alone"


def test_second_half_does_not_reach_training(recordings: source.Recordings) -> None:
    kept = data.training_recordings(recordings.items, 1)
    spoilt = []
    for item in kept:
        samples = item.samples.copy()
        data.test_part(samples)[:] = 1e6
        spoilt.append(source.Recording(samples, item.label, item.subject, item.side))
    assert np.array_equal(weights(fit(kept, QUICK)), weights(fit(spoilt, QUICK)))


def test_learns(recordings: source.Recordings) -> None:
    net = fit(
        data.training_recordings(recordings.items, 1),
        Recipe(epochs=8, batch=8, hop=10, rate=1e-2, average=0.9),
    )
    windows = data.test_windows(data.tested_recordings(recordings.items, 1))
    assert (logits(net, windows.values).argmax(axis=1) == windows.labels).mean() > 0.8


def test_size_and_shape() -> None:
    net = ExerciseNet(torch.zeros(6), torch.ones(6))
    assert parameter_count(net) < 200_000
    assert logits(net, np.zeros((3, 6, 128), np.float32)).shape == (3, 7)
    with pytest.raises(ConversionError, match="shape"):
        logits(net, np.zeros((3, 128, 6), np.float32))


def test_normalisation_is_in_the_network() -> None:
    values = torch.randn(50, 6, 128) * torch.arange(1, 7).view(1, 6, 1) + 5
    mean, deviation = channel_statistics(values)
    normal = ExerciseNet(mean, deviation).features[0](values)
    assert normal.mean(dim=(0, 2)).abs().max() < 1e-4 and (normal.std(dim=(0, 2)) - 1).abs().max() < 1e-2


def test_augmentation() -> None:
    excerpts = torch.randn(16, 6, EXCERPT)
    still = Augmentation(mirror=0, rotation=0, pace=0, scale=0, noise=0)
    mirrored = Augmentation(mirror=1, rotation=0, pace=0, scale=0, noise=0)
    plain = augment(excerpts, still, torch.Generator().manual_seed(0))
    flipped = augment(excerpts, mirrored, torch.Generator().manual_seed(0))
    assert plain.shape == (16, 6, data.WINDOW)
    signs = torch.tensor([-1.0, 1, 1, 1, -1, -1]).view(1, 6, 1)
    assert torch.allclose(flipped, plain * signs, atol=1e-5)
    # A turn keeps the length of both vectors.
    turned = augment(excerpts, Augmentation(0, 1.0, 0, 0, 0), torch.Generator().manual_seed(0))
    for triple in (slice(0, 3), slice(3, 6)):
        assert torch.allclose(turned[:, triple].norm(dim=1), plain[:, triple].norm(dim=1), atol=1e-4)
    fast = augment(excerpts, Augmentation(), torch.Generator().manual_seed(0))
    assert torch.isfinite(fast).all() and fast.shape == plain.shape


def test_command(path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "new" / "models"
    arguments = ["train", "--out", str(out), "--data", str(path), "--subject", "9", "--epochs", "1", "--json"]
    assert main(arguments) == 0
    shown = capsys.readouterr()
    described = json.loads(shown.out)
    assert "epoch 1/1" in shown.err
    assert described == json.loads((out / artefact.MANIFEST_FILE).read_text(encoding="utf-8"))
    assert (described["held_out_subject"], described["held_out_partner"]) == (9, 8)
    assert described["sha256"] == hashlib.sha256((out / artefact.MODEL_FILE).read_bytes()).hexdigest()
    assert described["labels"] == LABELS and described["accuracy"] is None
    assert set(described["export_check"]) == {"1", "3", "8"}
    assert sorted(entry.name for entry in out.iterdir()) == [artefact.MANIFEST_FILE, artefact.MODEL_FILE]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (["--subject", "11"], "subject 11: unknown subject"),
        (["--data", "absent.npy"], "absent.npy: no such file"),
        (["--epochs", "0"], "0 epochs"),
    ],
)
def test_bad_input(
    path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], changes: list, said: str
) -> None:
    out = tmp_path / "out"
    assert main(["train", "--out", str(out), "--data", str(path), *changes]) == 2
    shown = capsys.readouterr()
    assert shown.out == "" and shown.err.count("\n") == 1 and said in shown.err
    assert not out.exists()


def test_out_is_a_file(path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "out").write_text("kept")
    assert main(["train", "--out", str(tmp_path / "out"), "--data", str(path)]) == 2
    assert "cannot be made a folder" in capsys.readouterr().err
    assert (tmp_path / "out").read_text() == "kept"


def test_failed_write_keeps_what_was_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    artefact.write(tmp_path, b"old", {"a": 1})
    honest = Path.write_bytes

    def full(self: Path, content: bytes) -> int:
        if artefact.MANIFEST_FILE in self.name:
            raise OSError(28, "No space left on device")
        return honest(self, content)

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(ConversionError, match="No space left"):
        artefact.write(tmp_path, b"new", {"a": 2})
    assert (tmp_path / artefact.MODEL_FILE).read_bytes() == b"old"
    assert sorted(entry.name for entry in tmp_path.iterdir()) == [artefact.MANIFEST_FILE, artefact.MODEL_FILE]
