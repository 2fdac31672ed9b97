"""Shares of time out of a runtime's trace."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from edgeengine.devices.providers.trace import RUNS, time_share


class Recorded:
    """A session whose trace is this."""

    def __init__(self, prefix: Path, events: list[dict[str, object]]):
        self._file = prefix.with_suffix(".json")
        self._file.write_text(json.dumps(events))
        self.runs = 0

    def end_profiling(self) -> str:
        return str(self._file)


def event(provider: str, us: int, name: str = "conv_kernel_time", cat: str = "Node") -> dict[str, object]:
    return {"cat": cat, "name": name, "dur": us, "args": {"provider": provider} if provider else {}}


def run(session: object) -> None:
    session.runs += 1  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("events", "share"),
    [
        ([event("A", 30), event("B", 60), event("A", 10)], {"A": 0.4, "B": 0.6}),
        ([event("A", 5), event("A", 99, "conv_fence_before"), event("", 7), event("B", 9, cat="Session")], {"A": 1.0}),
        ([event("A", 0)], {}),
        ([], {}),
    ],
)
def test_only_kernels_with_a_provider_count(events: list[dict[str, object]], share: dict[str, float]) -> None:
    made: list[Recorded] = []

    def make(prefix: Path) -> Recorded:
        made.append(Recorded(prefix, events))
        return made[0]

    assert time_share(make, run) == pytest.approx(share)  # type: ignore[arg-type]
    assert made[0].runs == RUNS and not made[0]._file.exists()
