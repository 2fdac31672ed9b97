"""Plans as files."""

from __future__ import annotations

from pathlib import Path

import msgspec

from edgeengine.errors import UserError
from edgeengine.spec import Latency, Plan, Versioned
from edgeengine.spec.plan import SCHEMA
from edgeengine.spec.profile import QUANTILES


def load_plan(path: str | Path) -> Plan:
    """Read a plan that `edgeengine plan` wrote. Raises UserError when it is not one."""
    try:
        raw = Path(path).read_bytes()
        schema = msgspec.json.decode(raw, type=Versioned).schema
        if schema != SCHEMA:
            raise UserError(f"{path}: plan schema {schema}, this edgeengine reads {SCHEMA}; plan again")
        return check_consistent(msgspec.json.decode(raw, type=Plan), str(path))
    except OSError as e:
        raise UserError(f"{path}: cannot read the plan ({e.strerror}); make one with 'edgeengine plan WORKLOAD -o {path}'") from e
    except msgspec.DecodeError as e:
        raise UserError(f"{path}: not a plan ({e}); make one with 'edgeengine plan WORKLOAD -o {path}'") from e


def check_consistent(plan: Plan, where: str) -> Plan:
    """Raises UserError for a plan, edited by hand perhaps, that no scheduler could follow."""
    known = {p.name for p in plan.processors}
    for latency in plan.overheads.values():
        _check_latency(latency, f"{where}: overheads")
    for t in plan.tasks:
        task = f"{where}: task {t.task!r}"
        if t.segments < 1:
            raise UserError(f"{task}: segments must be at least 1, not {t.segments}; plan again")
        ways: dict[int, set[int]] = {}
        for s in t.steps:
            if not 0 <= s.start < s.stop <= t.segments:
                raise UserError(f"{task}: step {s.subgraph!r} leads from {s.start} to {s.stop} of {t.segments}; plan again")
            if s.processor not in known:
                raise UserError(
                    f"{task}: step {s.subgraph!r} runs on {s.processor!r}, which is none of its processors; plan again"
                )
            _check_latency(s.latency, f"{task}: step {s.subgraph!r}")
            ways.setdefault(s.start, set()).add(s.stop)
        reached, grown = {0}, True
        while grown:
            more = {stop for start in reached for stop in ways.get(start, ())} - reached
            reached, grown = reached | more, bool(more)
        if t.segments not in reached:
            raise UserError(f"{task}: its steps do not lead from 0 to {t.segments}; plan again")
    return plan


def _check_latency(latency: Latency, where: str) -> None:
    q = latency.quantiles_ns
    if len(q) != len(QUANTILES) or latency.n < 1 or q[0] < 0 or list(q) != sorted(q):
        raise UserError(f"{where}: its latency is not {len(QUANTILES)} ascending quantiles of at least one sample; plan again")
