"""`python -m benchmarks.learning_memory [--steps 10000]`: what learning adds to the memory of serving, and whether it grows.

Each is a process of its own with the exercise model (1-D CNN, 82k parameters): one serves, one serves and learns by gradient
steps on all weights, with 1 MB of samples, a checkpoint every step and twenty versions. Both have the same modules loaded, as an
engine has. Resident bytes of the whole process; the peak is the kernel's (VmHWM). Growth is over the second half of the steps:
before that the allocators settle (versions come and go).
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from edgeengine.bundle import Bundle, open_bundle
from edgeengine.training.learner import Learner, Settings
from edgeengine.training.methods import Rehearsal
from edgeengine.training.serving import inference_session

MOST_MB, GROWTH_MB = 30.0, 1.0  # the bars
VERSIONS, LOOKS = 20, 10
SETTINGS = Settings(method="gradients", rehearsal=Rehearsal(new=4, old=28, micro_batch=8, lr=1e-5, average=0.95))


@dataclass(frozen=True)
class Resident:
    """MB: `now` and the most so far."""

    steps: int
    now: float
    peak: float


def resident(steps: int) -> Resident:
    """Of this process (Linux)."""
    lines = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    now, peak = (int(lines[name].split()[0]) / 1024 for name in ("VmRSS", "VmHWM"))
    return Resident(steps, now, peak)


def inputs_of(bundle: Bundle, count: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    return {t.name: rng.standard_normal((count, *t.shape[1:])).astype(t.dtype) for t in bundle.manifest.inputs}  # type: ignore[arg-type]


def serving(bundle: Bundle) -> Iterator[Resident]:
    session, inputs = inference_session(bundle, {}), inputs_of(bundle, 1)
    for _ in range(200):
        session.run(None, inputs)
    yield resident(0)


def learning(bundle: Bundle, state: Path, steps: int) -> Iterator[Resident]:
    """Serve and learn; LOOKS looks."""
    learner = Learner(bundle, state, SETTINGS)
    classes = learner.spec.classes
    for seed in range(4):
        label = np.random.default_rng(seed).integers(0, classes, 200)
        learner.learn(inputs_of(bundle, 200), label, domain=str(seed), known=True)
    learner.checkpoint()
    one = inputs_of(bundle, 1)
    for step in range(1, steps + 1):
        learner.step()
        learner.session.run(None, one)
        if step % (steps // VERSIONS) == 0:
            learner.publish()
        if step % (steps // LOOKS) == 0:
            yield resident(step)


def in_child(*arguments: object) -> list[Resident]:
    command = [sys.executable, "-m", "benchmarks.learning_memory", *map(str, arguments)]
    root = Path(__file__).parents[1]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=root)
    return [Resident(**json.loads(line)) for line in done.stdout.splitlines()]


def growth(looks: list[Resident]) -> float:
    """MB over the second half of the steps."""
    first = next(look for look in looks if look.steps * 2 >= looks[-1].steps)
    return looks[-1].now - first.now


def measure(steps: int) -> None:
    from coach.demo import MODELS
    from edgeengine.gradients import Request, build_trainable

    with tempfile.TemporaryDirectory(prefix="edgeengine-") as made:
        bundle = build_trainable(MODELS / "exercise.onnx", Path(made, "exercise.edge"), Request(train="all"), parts=1)
        (serves,) = in_child("--serve", bundle.path)
        looks = in_child("--learn", bundle.path, "--state", Path(made, "state"), "--steps", steps)
    more, grown = looks[-1].peak - serves.peak, growth(looks)
    print(
        f"serving {serves.peak:.1f} MB; learning as well, {looks[-1].peak:.1f} MB at most: {more:.1f} MB more (bar {MOST_MB:g})"
    )
    for look in looks:
        print(f"  after {look.steps:6} steps {look.now:7.2f} MB")
    print(f"grown by {grown:.2f} MB in the second half of {steps} steps (bar {GROWTH_MB:g})")
    if more > MOST_MB or grown > GROWTH_MB:
        sys.exit("memory: a bar is missed")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.learning_memory", description=__doc__)
    parser.add_argument("--steps", type=int, default=10_000)
    parser.add_argument("--serve", help=argparse.SUPPRESS)  # what the children do
    parser.add_argument("--learn", help=argparse.SUPPRESS)
    parser.add_argument("--state", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.steps < VERSIONS:
        parser.error(f"--steps {given.steps}: at least {VERSIONS}")
    if given.serve:
        looks = serving(open_bundle(given.serve))
    elif given.learn:
        looks = learning(open_bundle(given.learn), Path(given.state), given.steps)
    else:
        measure(given.steps)
        return
    for look in looks:
        print(json.dumps(vars(look)), flush=True)


if __name__ == "__main__":
    main()
