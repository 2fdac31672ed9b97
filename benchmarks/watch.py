"""The watch data as a stream of one person: base models that never saw that person, and the windows to adapt and test with.

Per recording, by time: the first 30 % adapts, the last 50 % tests, the 20 % between choose settings; no window crosses a border.
Of old subjects the first 50 % trains the base, and the last 50 % measures forgetting: it is never stored nor trained on. Who
exercised beside the held-out subject, in the same tempo, is left out of everything.

Settings are chosen without the last 50 % of anybody, on base models of their own (`CHOOSING`): these are trained on the first
40 % of old subjects, and what they forget is measured on the 10 % after that, which they have neither seen nor stored.

Training and export are the converters' (torch); the models are kept in `benchmarks/.cache`, keyed by recipe and what is left out.
`python -m benchmarks.watch` trains all of them.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from functools import cache
from pathlib import Path

import numpy as np

from edgeengine_converters.watch import source
from edgeengine_converters.watch.data import PAIRS, TEST_HOP, WINDOW, Windows, cut, partner_of
from edgeengine_converters.watch.source import Recording

CACHE = Path(__file__).with_name(".cache")
SUBJECTS = tuple(sorted(one for pair in PAIRS for one in pair))
SIDES = (0, 1)
OLD_HOP, NEW_HOP, CHOOSING_HOP = 16, 8, 16
MIRROR = np.array([-1, 1, 1, 1, -1, -1], np.float32)
"""The other wrist is nearly a mirror image: these signs on (ax, ay, az, wx, wy, wz) make one into the other."""


@dataclass(frozen=True)
class Stage:
    """Which part of each recording, in per cent of its time, is for what; `hop` of the windows that measure.

    `knows`: old subjects, the base's training and what may be stored of them. `adapts`: the new person.
    `new` and `old` measure.
    """

    name: str
    knows: tuple[int, int]
    new: tuple[int, int]
    old: tuple[int, int]
    hop: int
    adapts: tuple[int, int] = (0, 30)


TESTING = Stage("test", knows=(0, 50), new=(50, 100), old=(50, 100), hop=TEST_HOP)
CHOOSING = Stage("choose", knows=(0, 40), new=(30, 50), old=(40, 50), hop=CHOOSING_HOP)


@cache
def recordings() -> tuple[Recording, ...]:
    return source.read(None).items


def windows(chosen: Iterable[Recording], percent: tuple[int, int], hop: int) -> Windows:
    """Windows of one part of each recording, recording after recording, each in the order of time."""
    pieces = [(cut(_part(r.samples, percent), WINDOW, hop), r.label) for r in chosen]
    values = np.concatenate([np.ascontiguousarray(v, np.float32) for v, _ in pieces])
    return Windows(values, np.concatenate([np.full(len(v), label, np.int64) for v, label in pieces]))


def _part(samples: np.ndarray, percent: tuple[int, int]) -> np.ndarray:
    begin, end = (len(samples) * p // 100 for p in percent)
    return samples[begin:end]


def of(subject: int) -> list[Recording]:
    return [r for r in recordings() if r.subject == subject]


def old_of(subject: int) -> list[Recording]:
    """Everyone but `subject` and who exercised beside them."""
    return [r for r in recordings() if r.subject not in (subject, partner_of(subject))]


def of_wrist(side: int) -> list[Recording]:
    return [r for r in recordings() if r.side == side]


def base(subject: int, stage: Stage = TESTING) -> Path:
    """The exercise model trained on the old subjects of `subject`."""
    pair = tuple(sorted((subject, partner_of(subject))))
    return _kept(f"without-{pair[0]}-{pair[1]}", old_of(subject), stage, mirror=True)


def base_of_wrist(side: int, stage: Stage = TESTING) -> Path:
    """The exercise model trained on one wrist of all subjects, without mirror images."""
    return _kept(f"wrist-{side}", of_wrist(side), stage, mirror=False)


def _kept(name: str, chosen: list[Recording], stage: Stage, mirror: bool) -> Path:
    from edgeengine_converters.watch.augment import Augmentation
    from edgeengine_converters.watch.train import Recipe

    recipe = Recipe() if mirror else Recipe(augmentation=Augmentation(mirror=0.0))
    key = hashlib.sha256(json.dumps(asdict(recipe), sort_keys=True).encode()).hexdigest()[:8]
    file = CACHE / f"{name}-{stage.name}-{key}.onnx"
    if not file.exists():
        _train(file, chosen, stage, recipe)
    return file


def _train(file: Path, chosen: list[Recording], stage: Stage, recipe) -> None:  # type: ignore[no-untyped-def]
    import torch

    from edgeengine_converters.export import export
    from edgeengine_converters.watch.train import fit

    # The recipe trains on the first half of what it is given.
    seen = [replace(r, samples=_part(r.samples, (0, 2 * stage.knows[1]))) for r in chosen]
    net = fit(seen, recipe)
    example = windows(chosen, stage.knows, OLD_HOP).values

    def sample(batch: int) -> torch.Tensor:
        return torch.from_numpy(example[np.linspace(0, len(example) - 1, batch).astype(np.int64)])

    exported = export(net, sample, name="exercise", input_name="window", output_name="logits")
    file.parent.mkdir(exist_ok=True)
    aside = file.with_suffix(".part")
    aside.write_bytes(exported.content)
    aside.replace(file)


def main() -> None:
    for stage in (CHOOSING, TESTING):
        for file in (*(base(pair[0], stage) for pair in PAIRS), *(base_of_wrist(side, stage) for side in SIDES)):
            print(file.name, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
