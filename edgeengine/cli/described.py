"""Workloads on described devices: their models are built as for this machine, and expected in place of measured."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from edgeengine.bundle import Bundle
from edgeengine.cli.console import note, print_json, progress_bar
from edgeengine.cli.resolve import open_or_build
from edgeengine.engine.prepare import Prepared
from edgeengine.errors import PlanInfeasible, UserError
from edgeengine.planning import plan_from_latencies
from edgeengine.planning.expectations import Expectations
from edgeengine.spec import SubgraphSpec
from edgeengine.spec.device import DeviceProfile
from edgeengine.workload import Task, Workload

if TYPE_CHECKING:
    from edgeengine.graph.fallback import Island


@dataclass(frozen=True)
class OnDevice:
    """A workload on a described device: the one given, but for a published one, whose latencies are now the device's."""

    workload: Workload
    prepared: Prepared


def on_device(workload: Workload, device: str | None, state: Path) -> OnDevice:
    """Plan a workload whose latencies are described: by `device`, or (None) as its tasks state them.

    Raises UserError for an unknown device, PlanInfeasible for a task that none of its processors can run.
    """
    from edgeengine.devices import load_profile
    from edgeengine.planning.described import plan_on_device
    from edgeengine.planning.estimates import published_on_device
    from edgeengine.workload.published import published

    if device is None:
        return OnDevice(workload, Prepared(plan_from_latencies(workload), []))
    profile = load_profile(device)
    ready = published(workload.path)
    if ready is not None:
        workload, plan = published_on_device(workload, ready, profile)
        return OnDevice(workload, Prepared(plan, []))
    with progress_bar() as bar:
        bundles = open_or_build(workload, state, {}, bar)
    expect = {t.name: expectations(t, profile) for t in workload.tasks}
    plan, rows = plan_on_device(workload, bundles, profile, expect)
    return OnDevice(workload, Prepared(plan, rows))


def known_device(device: str, processors: Sequence[str] | None) -> DeviceProfile:
    """The described device. Raises UserError for one that is not known, and for processors that it does not have."""
    from edgeengine.devices import load_profile

    profile = load_profile(device)
    known = [p.name for p in profile.processors]
    for name in processors or ():
        if name not in known:
            raise UserError(f"--processor {name!r}: not on {profile.name}; there are {', '.join(known)}")
    return profile


def predict(bundle: Bundle, profile: DeviceProfile, processors: Sequence[str] | None, output: str | None, json: bool) -> None:
    """What `profile --device` does: print (and write) what each subgraph is expected to take there. Nothing is stored.

    Raises PlanInfeasible where the device can run no part of the model, with the reasons.
    """
    from edgeengine.cli.profile_table import print_profile, remarks
    from edgeengine.profiling import export_json
    from edgeengine.profiling.described import described_rows, reasons
    from edgeengine.reporting import write_file

    found = described_rows(bundle, profile, expectations(None, profile))
    rows = [r for r in found.rows if not processors or r.processor in processors]
    if not rows:
        raise PlanInfeasible(f"{profile.name}: {bundle.manifest.name} can run nowhere: {reasons(found.refused)}")
    if output is not None:
        write_file(Path(output), export_json(rows, [])[0])
    if json:
        print_json({"device": profile.name, "bundle": str(bundle.path), "hash": bundle.hash, "rows": rows})
    else:
        print_profile(bundle.manifest, profile.name, "predicted, bounds of 90 %", rows, {})
    for remark in [*remarks(rows), *(f"not on {p}: {why}" for p, why in found.refused)]:
        note(remark)


def expectations(task: Task | None, profile: DeviceProfile) -> Expectations:
    """Of one task on a device; of inference without one."""
    return Expectations(profile, find_left, task is not None and task.is_training)


def find_left(bundle: Bundle, subgraph: SubgraphSpec, runs: frozenset[str]) -> tuple[Island, ...]:
    """What falls back, looked for in the graph only where the manifest names an operator that is not taken."""
    return _islands(bundle.path / subgraph.file, runs) if subgraph.op_counts.keys() - runs else ()


@lru_cache(maxsize=4096)
def _islands(file: Path, runs: frozenset[str]) -> tuple[Island, ...]:
    from edgeengine.graph.fallback import islands

    return tuple(islands(file, runs))
