"""The exercise model as a bundle that carries how its inputs were made, so that a device need not know it twice."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import msgspec

import edgeengine
from coach.demo import MODELS
from edgeengine.bundle import Bundle, open_bundle
from edgeengine.errors import UserError

UNITS = ("g", "g", "g", "rad/s", "rad/s", "rad/s")


class Preprocessing(msgspec.Struct, frozen=True):
    """What the manifest of the coach's bundles says of the model's input `input`, float32 [1, channels, window].

    The newest `window` samples at `rate_hz`, newest last, one row per channel in its unit. `normalisation` is where mean and
    scale are applied: "in the graph", so a device hands over physical units and nothing else. `left_out`: people of the recordings
    whom the model was not trained on.
    """

    input: str
    rate_hz: float
    window: int
    channels: tuple[str, ...]
    units: tuple[str, ...]
    labels: tuple[str, ...]
    left_out: tuple[int, ...] = ()
    normalisation: str = "in the graph"


def open_model(model: str, state: Path) -> tuple[Bundle, Preprocessing]:
    """The bundle, built into `state` where `model` ("": the coach's own) is an .onnx, and what it says of its input.

    Raises UserError for a model that cannot be opened or does not say how its input is made.
    """
    path = Path(model) if model else MODELS / "exercise.onnx"
    bundle = open_bundle(path) if path.is_dir() else _built(path, state)
    try:
        return bundle, msgspec.convert(bundle.manifest.preprocessing, Preprocessing)
    except msgspec.ValidationError as e:
        raise UserError(
            f"{bundle.path}: its manifest does not say how the input is made ({e}); let the coach build it"
        ) from e


def _built(path: Path, state: Path) -> Bundle:
    about_file = path.with_suffix(".json")
    try:
        about = about_file.read_bytes()
        key = hashlib.sha256(edgeengine.__version__.encode() + path.read_bytes() + about).hexdigest()
    except OSError as e:
        raise UserError(f"{e.filename}: cannot be read ({e.strerror}); a model needs its .json beside it") from e
    folder = state / "bundles" / f"{path.stem}-{key[:16]}.edge"
    if folder.is_dir():
        return open_bundle(folder)
    said = _preprocessing(about, about_file)
    try:
        from edgeengine.gradients import Request, build_trainable
    except ImportError as e:
        raise UserError(
            f"{path}: building a bundle needs onnx: pip install 'edgeengine[graph]', or give an .edge"
        ) from e
    folder.parent.mkdir(parents=True, exist_ok=True)
    request = Request(train="all", optimizer="adamw")
    return build_trainable(path, folder, request, parts=1, preprocessing=msgspec.to_builtins(said))


def _preprocessing(about: bytes, file: Path) -> Preprocessing:
    """From the manifest that the training wrote beside the model."""
    try:
        said: dict[str, Any] = json.loads(about)
        return Preprocessing(
            input=said["input"]["name"],
            rate_hz=said["rate_hz"],
            window=said["window"],
            channels=tuple(said["channels"]),
            units=UNITS,
            labels=tuple(said["labels"]),
            left_out=tuple(said[k] for k in ("held_out_subject", "held_out_partner") if k in said),
        )
    except (ValueError, KeyError, TypeError) as e:
        raise UserError(f"{file}: says not how the model's input is made ({e!r})") from e
