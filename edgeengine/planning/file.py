"""Plans as files."""

from __future__ import annotations

from pathlib import Path

import msgspec

from edgeengine.errors import UserError
from edgeengine.spec import Plan
from edgeengine.spec.plan import SCHEMA


def load_plan(path: str | Path) -> Plan:
    """Read a plan that `edgeengine plan` wrote. Raises UserError when it is not one."""
    try:
        plan = msgspec.json.decode(Path(path).read_bytes(), type=Plan)
    except OSError as e:
        raise UserError(f"{path}: cannot read the plan ({e.strerror}); make one with 'edgeengine plan WORKLOAD -o {path}'") from e
    except msgspec.DecodeError as e:
        raise UserError(f"{path}: not a plan ({e}); make one with 'edgeengine plan WORKLOAD -o {path}'") from e
    if plan.schema != SCHEMA:
        raise UserError(f"{path}: plan schema {plan.schema}, this edgeengine reads {SCHEMA}; plan again")
    return plan
