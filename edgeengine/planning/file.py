"""Plans as files."""

from __future__ import annotations

from pathlib import Path

import msgspec

from edgeengine.errors import UserError
from edgeengine.spec import Plan, Versioned
from edgeengine.spec.plan import SCHEMA


def load_plan(path: str | Path) -> Plan:
    """Read a plan that `edgeengine plan` wrote. Raises UserError when it is not one."""
    try:
        raw = Path(path).read_bytes()
        schema = msgspec.json.decode(raw, type=Versioned).schema
        if schema != SCHEMA:
            raise UserError(f"{path}: plan schema {schema}, this edgeengine reads {SCHEMA}; plan again")
        return msgspec.json.decode(raw, type=Plan)
    except OSError as e:
        raise UserError(f"{path}: cannot read the plan ({e.strerror}); make one with 'edgeengine plan WORKLOAD -o {path}'") from e
    except msgspec.DecodeError as e:
        raise UserError(f"{path}: not a plan ({e}); make one with 'edgeengine plan WORKLOAD -o {path}'") from e
