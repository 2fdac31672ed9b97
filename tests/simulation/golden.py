"""The workloads behind tests/golden, and how to write these logs anew: python -m tests.simulation.golden"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from edgeengine.events import dump_log
from edgeengine.scheduling import make_policy
from edgeengine.simulation import Median, simulate
from edgeengine.workload import parse_workload
from tests.builders import MS, PROCESSORS, plan, toml

FOLDER = Path(__file__).parents[1] / "golden"

# name -> (policy, milliseconds, tasks)
SCENES: dict[str, tuple[str, int, list[dict[str, Any]]]] = {
    "fifo-one-core": (
        "fifo", 30,
        [
            {"name": "short", "period_ms": 6, "latency_ms": {"a": 2}},
            {"name": "long", "period_ms": 15, "latency_ms": {"a": 6}, "segments": 2},
        ],
    ),
    "edf-shared-cores": (
        "edf", 40,
        [
            {"name": "camera", "period_ms": 10, "latency_ms": {"npu": 4, "both": 5}, "segments": 2, "criticality": "high"},
            {"name": "pose", "after": "camera", "latency_ms": {"emulated": 3, "a": 4}},
            {"name": "speech", "rate_hz": 60, "latency_ms": {"a": 7, "b": 7}, "carry": {"new": "state"}, "stale": "queue:2"},
            {"name": "tune", "kind": "train", "latency_ms": {"b": 6}, "segments": 3},
        ],
    ),
    "edf-overload": (
        "edf", 60,
        [
            {"name": "frame", "period_ms": 8, "latency_ms": {"a": 6}, "stale": "latest", "deadline_ms": 20},
            {"name": "caption", "after": "frame", "probability": 0.5, "latency_ms": {"a": 5}},
            {"name": "noise", "arrivals": {"poisson": 120, "seed": 2}, "deadline_ms": 15, "latency_ms": {"a": 3}},
        ],
    ),
    "price-overload": (
        "price", 60,
        [
            {"name": "eyes", "period_ms": 16, "latency_ms": {"npu": 4, "a": 18}, "segments": 2, "criticality": "high"},
            {"name": "gaze", "after": "eyes", "latency_ms": {"npu": 6, "both": 9}, "segments": 2},
            {"name": "hand", "period_ms": 22, "latency_ms": {"npu": 12, "b": 21}},
            {"name": "tune", "kind": "train", "latency_ms": {"a": 5}, "segments": 2},
        ],
    ),
    "heft-reserved": (
        "heft-reserved", 30,
        [
            {"name": "short", "period_ms": 10, "latency_ms": {"npu": 2, "a": 6}, "segments": 2},
            {"name": "long", "period_ms": 15, "latency_ms": {"npu": 7, "a": 11}, "segments": 2},
        ],
    ),
}  # fmt: skip


def log_of(scene: str) -> bytes:
    policy, ms, tables = SCENES[scene]
    tasks = parse_workload(toml(*tables))
    done = simulate(tasks, plan(tasks, PROCESSORS), make_policy(policy), Median(), stop_ns=ms * MS, seed=1, keep_log=True)
    return dump_log(done.log or [])


if __name__ == "__main__":
    for name in SCENES:
        (FOLDER / f"{name}.jsonl").write_bytes(log_of(name))
