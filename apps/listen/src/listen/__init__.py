"""Only who speaks is listened to: voice activity gates the two models of a wake word. `python -m listen SOUND.wav`."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from edgeengine import Engine, JobResult, discover, open_bundle
from edgeengine.engine.prepare import Budget, prepare
from edgeengine.io import ArraySource, CallbackSink
from edgeengine.profiling import ProfileStore
from edgeengine.workload import parse_workload

RATE_HZ, STEP, STEPS = 16_000, 512, 5  # voice activity takes 32 ms at a time, the wake word five of those
FRAMES = STEPS * STEP // 160  # of the spectrogram, one every 10 ms
SOUND = 512 + (FRAMES - 1) * 160  # samples that make so many frames

WORKLOAD = Path(__file__).with_name("listen.toml")


def frames(tensors: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Float32 [frames, 32], in the range the second model was trained on."""
    return {"input_1": tensors["input_1"].reshape(-1, 32) / np.float32(10) + np.float32(2)}


@dataclass
class Heard:
    """`voice`: (second, probability) of each step; `words`: (second, float32 [96]) while somebody spoke."""

    voice: list[tuple[float, float]] = field(default_factory=list)
    words: list[tuple[float, np.ndarray]] = field(default_factory=list)


def listen(sound: np.ndarray, folder: Path, budget: Budget | None = None) -> Heard:
    """Play `sound`, float32 [n] at 16 kHz, as a microphone would. `folder` holds the bundles; what is measured is kept there."""
    workload, heard = parse_workload(WORKLOAD.read_bytes(), str(folder / WORKLOAD.name)), Heard()
    bundles = {t.name: open_bundle(t.model or "") for t in workload.tasks}
    microphone = ArraySource(sound, RATE_HZ, input="input", window=STEP + 64)

    def on_voice(result: JobResult) -> None:
        heard.voice.append((result.release_ns / 1e9, float(result.outputs["output"].item()) if result.outputs else 0.0))
        if result.index % STEPS == STEPS - 1 and max(p for _, p in heard.voice[-STEPS:]) > 0.5:
            engine.submit("mel", {"input": microphone.window_at(result.release_ns, SOUND)})

    def on_word(result: JobResult) -> None:
        if result.outputs:
            heard.words.append((result.release_ns / 1e9, next(iter(result.outputs.values())).reshape(-1)))

    silence = {"microphone": ArraySource(np.zeros(60 * RATE_HZ), RATE_HZ, input="input", window=STEP + 64)}
    processors = [p for p in discover() if p.usable and not p.emulated]
    store = ProfileStore(folder / "profile.sqlite")
    plan = prepare(workload, dict(bundles), store, sources=dict(silence), processors=processors, budget=budget).plan
    sources, sinks = {"microphone": microphone}, {"voice": CallbackSink(on_voice), "word": CallbackSink(on_word)}
    with Engine(
        workload, plan, bundles=bundles, sources=dict(sources), sinks=dict(sinks), seconds=microphone.length_ns / 1e9
    ) as engine:
        engine.wait()
    return heard
