"""A learner that trains, serves, checkpoints and publishes takes no more memory the longer it does."""

from __future__ import annotations

from pathlib import Path

from benchmarks.learning_memory import Resident, growth, in_child
from tests.training.moons import moons_bundle


def test_a_thousand_steps_and_twenty_versions_do_not_grow(tmp_path: Path) -> None:
    bundle = moons_bundle(tmp_path)
    looks = in_child("--learn", bundle.path, "--state", tmp_path / "state", "--steps", 1000)
    assert [look.steps for look in looks] == list(range(100, 1001, 100))
    assert growth(looks) < 1.0  # MB: 1 KB a step; the state is 20 KB


def test_growth_is_what_came_in_the_second_half() -> None:
    assert growth([Resident(100, 5.0, 5.0), Resident(500, 9.0, 9.0), Resident(1000, 8.0, 9.0)]) == -1.0
