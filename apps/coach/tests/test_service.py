"""The coach over an emulated sensor: decisions come, what the wearer names is learned and survives, bad input is one line."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("serial", reason="the serial port needs pyserial: pip install 'edgeengine-coach[app]'")
pytest.importorskip("onnx", reason="building the coach's bundle needs onnx")

from coach.board import Board
from coach.config import Config, load_config
from coach.lessons import windows
from coach.model import open_model
from coach.player import Manner, Player
from coach.recordings import load_recordings
from coach.repetitions import RepetitionCounter
from coach.service import Coach, Decision
from edgeengine.engine.prepare import Budget
from edgeengine.errors import DeviceError, UserError

SPEED = 5.0
LITTLE = Budget(bundle_s=0.1, chains_s=0.1, overheads_s=0.1, rehearsal_s=0.5)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Recordings, bundle and plan, made once."""
    return tmp_path_factory.mktemp("coach")


@contextmanager
def playing(port: Path, folder: Path, baudrate: int = 115200) -> Iterator[None]:
    """Subject 4 moves until left."""
    board = Board(port, baudrate, np.random.default_rng(0))
    over = threading.Event()
    player = Player(board, "wt901", Manner(speed=SPEED), np.random.default_rng(0), sleep=lambda s: over.wait(s))  # type: ignore[func-returns-value]
    recordings = [r for r in load_recordings(4, folder / "recordings") if r.label in ("PEN", "ROW")]
    thread = threading.Thread(target=lambda: player.play(recordings, 600.0), daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()  # what is left is played at once, to nobody
        thread.join()


def decided(coach: Coach, count: int, each: object = None) -> list[Decision]:
    """The first `count` decisions of a run."""
    seen: list[Decision] = []
    enough = threading.Event()

    def told(decision: Decision) -> None:
        seen.append(decision)
        if len(seen) >= count:
            enough.set()

    with coach.running(told):
        assert enough.wait(60)
        if callable(each):
            each(coach)
    return seen


def test_decides_over_the_line_and_learns_what_it_is_told(tmp_path: Path, folder: Path) -> None:
    port, config = tmp_path / "tty", Config(port=str(tmp_path / "tty"), speed=SPEED, deadline_ms=2000.0)

    def name(coach: Coach) -> None:
        latest = coach.tally.latest
        assert latest is not None and latest.window is not None
        coach.name(latest.window, "PEN")
        assert coach.named() == {"PEN": 1}

    with playing(port, folder):
        first = Coach(config, folder, budget=LITTLE)
        seen = decided(first, 10, name)
    whole = [d for d in seen if d.outcome == "met"]
    assert whole and all(d.label in first.about.labels and d.window is not None for d in whole)
    assert all(d.window.shape == (6, 128) and d.latency_ns >= 0 for d in whole)  # type: ignore[union-attr,operator]
    assert all(0 < d.confidence <= 1 for d in whole)
    with playing(port, folder):
        again = Coach(config, folder, budget=LITTLE)  # another process would find the same
        decided(again, 2, lambda coach: pytest.fail("forgotten") if coach.named() != {"PEN": 1} else None)


def test_bundle_says_how_its_input_is_made(folder: Path) -> None:
    bundle, about = open_model("", folder)
    assert bundle.manifest.preprocessing["rate_hz"] == about.rate_hz == 50.0
    assert (about.window, len(about.channels), len(about.labels)) == (128, 6, 7)
    assert open_model("", folder)[0].hash == bundle.hash  # kept, not built again
    assert open_model(str(bundle.path), folder)[1] == about


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("prot = 'x'", "prot"),
        ("port = 1", "port"),
        ("port = 'x'\nspeed = 0", "speed"),
        ("port = 'x'\nframing = 'cms50d+'", "does not carry six channels"),
        ("port = 'x'\ndeadline_ms = -1", "deadline_ms"),
        ("port = ", "cannot be read as TOML"),
    ],
)
def test_configuration_is_checked(tmp_path: Path, text: str, said: str) -> None:
    (file := tmp_path / "coach.toml").write_text(text)
    with pytest.raises(UserError, match=r"coach\.toml") as refused:
        load_config(file)
    assert said in str(refused.value) and "\n" not in str(refused.value)


def test_a_port_that_is_not_there_is_one_line_and_exit_4(tmp_path: Path, folder: Path) -> None:
    config = tmp_path / "coach.toml"
    config.write_text(f'port = "{tmp_path}/tty"\nstate = "{folder}"\n')
    done = subprocess.run(
        [sys.executable, "-m", "coach", "--config", str(config)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 4
    assert len(done.stderr.strip().splitlines()) == 1 and f"{tmp_path}/tty" in done.stderr


def test_a_wrong_baud_rate_is_named(tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("coach.service._FIRST_WINDOW_S", 0.5)
    config = Config(port=str(tmp_path / "tty"), baudrate=9600, speed=SPEED)
    with playing(tmp_path / "tty", folder), pytest.raises(DeviceError, match=r"is 9600 the device's baud rate"):
        decided(Coach(config, folder, budget=LITTLE), 1)


@pytest.mark.parametrize("period_s", [1.2, 2.0, 3.1])
@pytest.mark.parametrize("seed", range(3))
def test_repetitions_of_a_swinging_wrist_are_counted(period_s: float, seed: int) -> None:
    rng, rate_hz, count = np.random.default_rng(seed), 50.0, 12
    axis = rng.normal(size=3)
    t = np.arange(round(count * period_s * rate_hz)) / rate_hz
    turning = 2.0 * np.sin(2 * np.pi * t / period_s)[:, None] * axis / np.linalg.norm(axis)
    counter = RepetitionCounter(rate_hz)
    for start in range(0, len(t), 25):
        counter.push(turning[start : start + 25] + rng.normal(0, 0.1, (len(turning[start : start + 25]), 3)))
    assert abs(counter.count - count) <= 1


def test_a_resting_wrist_repeats_nothing() -> None:
    counter = RepetitionCounter(50.0)
    for _ in range(40):
        counter.push(np.random.default_rng(1).normal(0, 0.05, (25, 3)))
    assert counter.count == 0


def test_lessons_cross_no_border() -> None:
    recording = type("R", (), {"label": "A", "samples": np.arange(1000)[:, None] * np.ones(6)})
    found = windows([recording], ("A",), 0.5, 1.0, 25)  # type: ignore[list-item]
    assert found.values[:, 0].min() >= 500
