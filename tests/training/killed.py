"""A process that learns until it is killed: `python -m tests.training.killed BUNDLE STATE METHOD`.

It prints what it was told is safe, one line each: `sample N` (samples so far), `deleted N` (that number), `step N` and
`version NAME`.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

from edgeengine.bundle import open_bundle
from edgeengine.training.learner import Learner
from tests.training.moons import METHODS, old, shifted

BATCH = 5


def batch(number: int) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """The samples BATCH * number and following, as every process would give them."""
    return (old if number % 2 else shifted)(BATCH, number)


def say(what: str, value: object) -> None:
    sys.stdout.write(f"{what} {value}\n")
    sys.stdout.flush()


def main(bundle: str, state: str, method: str) -> None:
    learner = Learner(open_bundle(bundle), Path(state), METHODS[method])
    say("ready", "")
    while True:
        number = learner.samples.came // BATCH
        numbers = learner.learn(*batch(number), domain="old" if number % 2 else "user")
        say("sample", numbers.stop)
        if learner.step() is not None:
            say("step", learner.method.steps)
        if number % 4 == 0:
            learner.publish()
            say("version", learner.serving)
        if number % 5 == 0:
            learner.delete([numbers.start])
            say("deleted", numbers.start)
        if number % 7 == 0:
            learner.checkpoint()
        if number % 9 == 0 and learner.serving:
            learner.rollback()
            say("version", learner.serving)


if __name__ == "__main__":
    main(*sys.argv[1:])
