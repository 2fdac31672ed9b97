"""Runs SimSo 0.8.5 under its own interpreter; imports nothing of ours. One simulation per line on stdin, one JSON line each.

The setting is the JSON argument. SimSo's EDF prints at every decision: that goes to the null device, as does all it says.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import time
import types
from typing import Any


def main() -> None:
    setting = json.loads(sys.argv[1])
    answers, sys.stdout = sys.stdout, open(os.devnull, "w")  # noqa: SIM115 (open until the process ends)
    _supply_imp()
    for _ in sys.stdin:
        print(json.dumps(_simulate(setting)), file=answers, flush=True)


def _supply_imp() -> None:
    """SimSo imports `imp`, which Python 3.12 dropped; it calls it only to load a scheduler from a file, which we do not."""
    if sys.version_info >= (3, 12):
        sys.modules["imp"] = types.ModuleType("imp")


def _simulate(setting: dict[str, Any]) -> dict[str, Any]:
    configuration = importlib.import_module("simso.configuration").Configuration()
    configuration.duration = setting["simulated_ms"] * configuration.cycles_per_ms
    for i, (period, wcet) in enumerate(setting["tasks"], 1):
        configuration.add_task(name=f"t{i}", identifier=i, period=period, wcet=wcet, deadline=period, abort_on_miss=True)
    for i in range(1, setting["processors"] + 1):
        configuration.add_processor(name=f"cpu{i}", identifier=i)
    configuration.scheduler_info.clas = "simso.schedulers.EDF"
    configuration.check_all()
    model = importlib.import_module("simso.core").Model(configuration)
    begun = time.perf_counter()
    model.run_model()
    seconds = time.perf_counter() - begun
    ended = sum(job.end_date is not None for task in model.results.tasks.values() for job in task.jobs)
    return {"jobs": ended, "seconds": seconds}


if __name__ == "__main__":
    main()
