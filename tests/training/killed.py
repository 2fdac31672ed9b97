"""A process that learns until it is killed: `python -m tests.training.killed BUNDLE STATE METHOD`.

It prints what it was told is safe, one line each: `sample N` (samples so far), `step N`, `version NAME`.
"""

from __future__ import annotations

import sys
from pathlib import Path

from edgeengine.bundle import open_bundle
from edgeengine.training.learner import Learner
from tests.training.moons import METHODS, old, shifted


def say(what: str, value: object) -> None:
    sys.stdout.write(f"{what} {value}\n")
    sys.stdout.flush()


def main(bundle: str, state: str, method: str) -> None:
    learner = Learner(open_bundle(bundle), Path(state), METHODS[method])
    number = 0
    say("ready", "")
    while True:
        number += 1
        numbers = learner.learn(*(old if number % 2 else shifted)(5, number), domain="old" if number % 2 else "user")
        say("sample", numbers.stop)
        if learner.step() is not None:
            say("step", learner.method.steps)
        if number % 4 == 0:
            learner.publish()
            say("version", learner.serving)
        if number % 7 == 0:
            learner.checkpoint()


if __name__ == "__main__":
    main(*sys.argv[1:])
