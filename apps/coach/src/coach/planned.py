"""The plan for this machine: measured at the first start, kept afterwards."""

from __future__ import annotations

import hashlib
from pathlib import Path

import msgspec

import edgeengine
from edgeengine.bundle import Bundle
from edgeengine.devices import device_id, discover, usable_cores
from edgeengine.engine.prepare import Budget, prepare
from edgeengine.errors import EdgeEngineError
from edgeengine.planning import load_plan
from edgeengine.profiling import ProfileStore, versions
from edgeengine.spec import Plan
from edgeengine.workload import Workload

BUDGET = Budget(bundle_s=1.0, chains_s=0.5, overheads_s=1.0, rehearsal_s=4.0)


def planned(workload: Workload, bundles: dict[str, Bundle], state: Path, budget: Budget = BUDGET) -> Plan:
    """The kept plan if workload, bundles, machine and versions are the same, else one measured now, with random inputs."""
    about = [edgeengine.__version__, versions(), workload.sha256, device_id(), usable_cores()]
    key = hashlib.sha256(" ".join([*map(str, about), *(b.hash for b in bundles.values())]).encode()).hexdigest()
    file = state / "plans" / f"coach-{key[:16]}.json"
    if file.is_file():
        try:
            return load_plan(file)
        except EdgeEngineError:
            file.unlink()  # damaged: measured again
    stood_in = tuple(msgspec.structs.replace(t, inputs="random:0") for t in workload.tasks)
    processors = [p for p in discover() if p.usable and not p.emulated]
    store = ProfileStore(state / "profile.sqlite")
    measured = msgspec.structs.replace(workload, tasks=stood_in)
    plan = prepare(measured, dict(bundles), store, processors=processors, budget=budget).plan
    file.parent.mkdir(parents=True, exist_ok=True)
    aside = file.with_suffix(".tmp")
    aside.write_bytes(msgspec.json.format(msgspec.json.encode(plan), indent=1))
    aside.replace(file)
    return plan
