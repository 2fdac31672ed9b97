"""The watch data as a stream of one person: base models that never saw that person, and the windows to adapt and test with.

Per recording, by time: the first 30 % adapts, the last 50 % tests, the 20 % between choose settings; no window crosses a border.
Of old subjects the first 50 % trains the base, and the last 50 % measures forgetting: it is never stored nor trained on. Who
exercised beside the held-out subject, in the same tempo, is left out of everything.

Training and export are the converters' (torch); the models are kept in `benchmarks/.cache`, keyed by recipe and what is left out.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from dataclasses import asdict
from functools import cache
from pathlib import Path

import numpy as np

from edgeengine_converters.watch import source
from edgeengine_converters.watch.data import PAIRS, TEST_HOP, WINDOW, Windows, cut, partner_of
from edgeengine_converters.watch.source import Recording

CACHE = Path(__file__).with_name(".cache")
SUBJECTS = tuple(sorted(one for pair in PAIRS for one in pair))
LEARN_HOP = 16
MIRROR = np.array([-1, 1, 1, 1, -1, -1], np.float32)
"""The other wrist is nearly a mirror image: these signs on (ax, ay, az, wx, wy, wz) make one into the other."""


@cache
def recordings() -> tuple[Recording, ...]:
    return source.read(None).items


def adapts(samples: np.ndarray) -> np.ndarray:
    return samples[: len(samples) * 3 // 10]


def chooses(samples: np.ndarray) -> np.ndarray:
    return samples[len(samples) * 3 // 10 : len(samples) // 2]


def trains(samples: np.ndarray) -> np.ndarray:
    return samples[: len(samples) // 2]


def tests(samples: np.ndarray) -> np.ndarray:
    return samples[len(samples) // 2 :]


def windows(chosen: Iterable[Recording], part, hop: int = TEST_HOP) -> Windows:  # type: ignore[no-untyped-def]
    """Windows of one part of each recording, recording after recording, each in the order of time."""
    pieces = [(cut(part(r.samples), WINDOW, hop), r.label) for r in chosen]
    values = np.concatenate([np.ascontiguousarray(v, np.float32) for v, _ in pieces])
    return Windows(values, np.concatenate([np.full(len(v), label, np.int64) for v, label in pieces]))


def of(subject: int) -> list[Recording]:
    return [r for r in recordings() if r.subject == subject]


def old_of(subject: int) -> list[Recording]:
    """Everyone but `subject` and who exercised beside them."""
    return [r for r in recordings() if r.subject not in (subject, partner_of(subject))]


def base(subject: int) -> Path:
    """The exercise model trained on the old subjects of `subject`."""
    pair = tuple(sorted((subject, partner_of(subject))))
    return _kept(f"without-{pair[0]}-{pair[1]}", old_of(subject), mirror=True)


def base_of_wrist(side: int) -> Path:
    """The exercise model trained on one wrist of all subjects, without mirror images."""
    return _kept(f"wrist-{side}", [r for r in recordings() if r.side == side], mirror=False)


def _kept(name: str, chosen: list[Recording], mirror: bool) -> Path:
    from edgeengine_converters.watch.augment import Augmentation
    from edgeengine_converters.watch.train import Recipe

    recipe = Recipe() if mirror else Recipe(augmentation=Augmentation(mirror=0.0))
    key = hashlib.sha256(json.dumps(asdict(recipe), sort_keys=True).encode()).hexdigest()[:8]
    file = CACHE / f"{name}-{key}.onnx"
    if not file.exists():
        _train(file, chosen, recipe)
    return file


def _train(file: Path, chosen: list[Recording], recipe) -> None:  # type: ignore[no-untyped-def]
    import torch

    from edgeengine_converters.export import export
    from edgeengine_converters.watch.train import fit

    net = fit(chosen, recipe)
    example = windows(chosen, trains).values

    def sample(batch: int) -> torch.Tensor:
        return torch.from_numpy(example[np.linspace(0, len(example) - 1, batch).astype(np.int64)])

    exported = export(net, sample, name="exercise", input_name="window", output_name="logits")
    file.parent.mkdir(exist_ok=True)
    aside = file.with_suffix(".part")
    aside.write_bytes(exported.content)
    aside.replace(file)
