"""What a device profile must satisfy beyond its form: positive figures in their units, and names that exist."""

from __future__ import annotations

import math
from collections.abc import Iterable

from edgeengine.devices.costs import COSTS, SPREAD
from edgeengine.errors import UserError
from edgeengine.spec.device import DeviceProfile, Figure
from edgeengine.spec.operators import OPERATORS

# By the last key of where a figure stands, or the one before it in tables by processor.
UNITS = {
    "cores": "cores", "clock": "GHz", "bandwidth": "GB/s", "size": "GB", "power": "W", "tau": "s", "sustained": "of the time",
    "slowest": "times", "slowdown": "times", "slower": "times", "first_run": "times", "latency": "ms", "overhead": "ms",
    "rate": "GMAC/s", "throughput": "GMAC/s", "operators": "ms", "min": "times", "p90": "times", "p99": "times", "max": "times",
    "runs": "runs",
}  # fmt: skip
UNIT_OF = COSTS | {SPREAD: "times"}
LEAST_RUNS = 1000
AT_LEAST_1 = ("slowest", "slowdown", "slower", "first_run", "p90", "p99", "max")


def check_profile(profile: DeviceProfile, file: str) -> DeviceProfile:
    """The profile. Raises UserError, one line with the file and the key, where a figure or a name cannot be right."""

    def refuse(where: str, what: str) -> UserError:
        return UserError(f"{file}: {where}: {what}")

    for where, figure in profile.figures():
        if problem := _problem(where, figure):
            raise refuse(where, problem)
    if not profile.processor:
        raise refuse("processor", "there is none; describe at least one")
    names = [p.name for p in profile.processors]
    twice = next((n for n in names if names.count(n) > 1), None)
    if twice is not None:
        raise refuse(f"processor {twice}", "two have this name")
    tables = [p.name for p in profile.processor]
    memories = {p.memory for p in profile.processor} | {"host"}
    for p in profile.processor:
        where = f"processor {p.name}"
        if not p.resources or p.threads < 1:
            raise refuse(where, "needs at least one resource, which it holds while it runs, and one thread")
        _known(p.slowdown, tables, f"{where}, slowdown", refuse)
        for precision, speed in p.speed.items():
            _known(speed.figures, UNIT_OF, f"{where}, speed.{precision}.figures", refuse)
            for name, cost in speed.figures.items():
                if cost.unit != UNIT_OF[name]:
                    raise refuse(f"{where}, speed.{precision}.figures.{name}", f"its unit must be {UNIT_OF[name]!r}")
            wrong = next((m for m, ms in speed.models.items() if not (math.isfinite(ms) and ms > 0)), None)
            if wrong is not None:
                raise refuse(f"{where}, speed.{precision}.models.{wrong}", "must be a positive number of milliseconds")
            if strange := sorted(speed.operators.keys() - OPERATORS):
                raise refuse(f"{where}, speed.{precision}.operators", f"there is no operator {strange[0]!r}")
    if (t := profile.tail) is not None:
        if t.runs.value < LEAST_RUNS:
            raise refuse("tail, runs", f"the greatest of fewer than {LEAST_RUNS} runs says nothing of what lies above the p99")
        if not t.min.value <= 1 <= t.p90.value <= t.p99.value <= t.max.value:
            raise refuse("tail", "min, 1, p90, p99 and max must not fall")
    for k in profile.link:
        _known((k.one, k.other), sorted(memories), f"link {k.one}-{k.other}", refuse)
    for m in profile.mode:
        _known(m.slower, tables, f"mode {m.name}, slower", refuse)
        _known(m.off, names, f"mode {m.name}, off", refuse)
    return profile


def _problem(where: str, figure: Figure) -> str:
    """What is wrong with a figure; "" if nothing is."""
    keys = where.rpartition(", ")[2].split(".")
    low, high = figure.low, figure.high
    if not all(math.isfinite(v) and v > 0 for v in (figure.value, low, high) if v is not None):
        bounds = "" if low is None and high is None else f" ({low} to {high})"
        return f"must be positive, and is {figure.value:g}{bounds}"
    if not (low or figure.value) <= figure.value <= (high or figure.value):
        return f"{figure.value:g} does not lie within its bounds {low} and {high}"
    key = next((k for k in reversed(keys[-2:]) if k in UNITS), None)
    if key is None:
        return "" if figure.unit.strip() else "its unit is missing"
    if figure.unit != UNITS[key]:
        return f"its unit must be {UNITS[key]!r}, not {figure.unit!r}"
    if key in AT_LEAST_1 and figure.value < 1:
        return f"must be at least 1, and is {figure.value:g}"
    return "must be below 1" if key == "sustained" and figure.value >= 1 else ""


def _known(names: Iterable[str], known: Iterable[str], where: str, refuse) -> None:  # type: ignore[no-untyped-def]
    for name in names:
        if name not in known:
            raise refuse(where, f"there is no {name!r}; known: {', '.join(known)}")


def readable(message: str, document: dict[str, object]) -> str:
    """msgspec says `$.processor[2].clock`; people know their processors by name."""
    for key, tables in document.items():
        for i, table in enumerate(tables if isinstance(tables, list) else ()):
            name = table.get("name", f"number {i + 1}") if isinstance(table, dict) else f"number {i + 1}"
            message = message.replace(f"`$.{key}[{i}].", f"`{key} {name}, ").replace(f"`$.{key}[{i}]`", f"`{key} {name}`")
    return message
