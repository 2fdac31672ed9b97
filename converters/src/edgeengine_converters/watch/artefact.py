"""Exports a trained classifier and writes the model with its manifest: exercise.onnx and exercise.json."""

import dataclasses
import hashlib
import json
import os
import platform
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
import torch

from edgeengine_converters.errors import ConversionError
from edgeengine_converters.export import Exported, export
from edgeengine_converters.watch import source
from edgeengine_converters.watch.data import SPLIT_RULE, WINDOW, partner_of, test_windows, tested_recordings
from edgeengine_converters.watch.evaluate import Fold
from edgeengine_converters.watch.net import parameter_count
from edgeengine_converters.watch.source import Recordings
from edgeengine_converters.watch.train import Recipe

MODEL_FILE = "exercise.onnx"
MANIFEST_FILE = "exercise.json"
INPUT_NAME = "window"
OUTPUT_NAME = "logits"
_TOOLS = ("torch", "onnx", "onnxscript", "onnxruntime", "numpy")


def export_fold(recordings: Recordings, subject: int, fold: Fold) -> Exported:
    """Exports the network, compared with torch on test windows of `subject`. Raises ConversionError."""
    windows = test_windows(tested_recordings(recordings.items, subject)).values

    def sample(batch: int) -> torch.Tensor:
        # Spread over the recordings: neighbouring windows are nearly the same.
        chosen = np.linspace(0, len(windows) - 1, batch).astype(np.int64)
        return torch.from_numpy(windows[chosen])

    return export(fold.net, sample, name="exercise", input_name=INPUT_NAME, output_name=OUTPUT_NAME)


def manifest(
    recordings: Recordings,
    subject: int,
    recipe: Recipe,
    fold: Fold,
    exported: Exported,
    measured: Mapping[int, Fold] | None,
) -> dict[str, Any]:
    """What the model is, how it was made and how well it does. Accuracies are per cent, two decimals.

    `measured` holds the fold of every subject. It is None when only `fold` was trained, and `accuracy` null.
    """
    accuracy = None
    if measured is not None:
        each = {one: entry.accuracy[one] for one, entry in measured.items()}
        accuracy = {
            "per_subject": {str(one): round(value, 2) for one, value in each.items()},
            "mean": round(float(np.mean(list(each.values()))), 2),
            "min": round(min(each.values()), 2),
            "max": round(max(each.values()), 2),
        }
    return {
        "model": MODEL_FILE,
        "sha256": hashlib.sha256(exported.content).hexdigest(),
        "bytes": len(exported.content),
        "opset": exported.opset,
        "ir_version": exported.ir_version,
        "input": {"name": INPUT_NAME, "dtype": "float32", "shape": ["batch", len(source.CHANNELS), WINDOW]},
        "output": {"name": OUTPUT_NAME, "dtype": "float32", "shape": ["batch", len(recordings.labels)]},
        "labels": list(recordings.labels),
        "channels": list(source.CHANNELS),
        "units": (
            "raw, the graph normalises them itself: ax, ay, az in g; wx, wy, wz in rad/s "
            "(the data set names no units: g and wx were checked against gravity, wy and wz are assumed)"
        ),
        "rate_hz": source.RATE_HZ,
        "window": WINDOW,
        "data": {
            "name": "watch_dataset.npy of seglearn (shoulder exercises, smart-watch)",
            "version": "1.2.5" if recordings.sha256 == source.DATA_SHA256 else "unknown",
            "licence": source.DATA_LICENCE,
            "copyright": source.DATA_COPYRIGHT,
            "reference": "https://arxiv.org/abs/1802.01489",
            "sha256": recordings.sha256,
        },
        "split_rule": SPLIT_RULE,
        "held_out_subject": subject,
        "held_out_partner": partner_of(subject),
        "held_out_accuracy": round(fold.accuracy[subject], 2),
        "accuracy": accuracy,
        "parameters": parameter_count(fold.net),
        "seed": recipe.seed,
        "epochs": recipe.epochs,
        "recipe": dataclasses.asdict(recipe),
        "tool_versions": {
            "python": platform.python_version(),
            **{tool: metadata.version(tool) for tool in _TOOLS},
        },
        "export_check": {str(batch): value for batch, value in exported.differences.items()},
        "licence": "Apache-2.0; trained on recordings under BSD-3-Clause, copyright notice in 'data'",
    }


def prepare(folder: Path) -> None:
    """Makes `folder`. Raises ConversionError when it cannot be made or written, before any time is spent."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConversionError(
            f"cannot be made a folder ({error.strerror})", where=str(folder), fix="choose another --out"
        ) from error
    if not os.access(folder, os.W_OK):
        raise ConversionError("cannot be written", where=str(folder), fix="choose another --out")


def write(folder: Path, content: bytes, described: Mapping[str, Any]) -> tuple[Path, Path]:
    """Writes model and manifest aside, then moves both into place; returns their paths.

    Raises ConversionError when the disk refuses; what was there before is then still there.
    """
    text = json.dumps(described, indent=2, ensure_ascii=False) + "\n"
    planned = {folder / MODEL_FILE: content, folder / MANIFEST_FILE: text.encode()}
    aside = {target: target.with_name(f".{target.name}.{os.getpid()}.part") for target in planned}
    try:
        for target, data in planned.items():
            aside[target].write_bytes(data)
        for target, part in aside.items():
            part.replace(target)
    except OSError as error:
        raise ConversionError(
            f"cannot be written ({error.strerror})",
            where=str(folder),
            fix="free space or choose another --out",
        ) from error
    finally:
        for part in aside.values():
            part.unlink(missing_ok=True)
    return folder / MODEL_FILE, folder / MANIFEST_FILE
