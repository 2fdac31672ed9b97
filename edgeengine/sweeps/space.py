"""What can be varied: the whole workload's rates and deadlines, the device, the policy, or any key of one task."""

from __future__ import annotations

import fnmatch
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import msgspec

from edgeengine.devices import list_profiles
from edgeengine.errors import UserError
from edgeengine.workload import Task, Workload, revised
from edgeengine.workload.xr import line_of, rates_of

Value = float | str
Point = dict[str, Value]

FACTORS = ("rate", "deadline")  # of every task
CHOICES = ("device", "policy", "times")
TASK_KEYS = ("period_ms", "rate_hz", "deadline_ms", "jitter_ms", "probability", "segments", "criticality", "model")
TEXT_KEYS = (*CHOICES, "criticality", "model")


@dataclass(frozen=True)
class Axis:
    """`key` is one of FACTORS or CHOICES, or TASK.KEY; `values` in the order given."""

    key: str
    values: tuple[Value, ...]

    @property
    def numeric(self) -> bool:
        return not isinstance(self.values[0], str)


def parse_axis(text: str, workload: Workload) -> Axis:
    """ "rate=0.5,1,2", "rate=0.5:2:7" (from, to, how many), "device=a,b", "device=raspberrypi/*", "vad.period_ms=10,20".

    Raises UserError for an unknown key or task, for values that are no numbers where numbers belong, and for a pattern that no
    device matches.
    """
    key, separator, listed = text.partition("=")
    if not separator or not listed:
        raise UserError(f"{text!r} is not like KEY=V1,V2,… or KEY=FROM:TO:COUNT; keys: {_known()}")
    name = key.rpartition(".")[2]
    if "." in key:
        workload.task(key.rpartition(".")[0])
    if name not in (TASK_KEYS if "." in key else FACTORS + CHOICES):
        raise UserError(f"there is no key {key!r} to vary; keys: {_known()}")
    if name in TEXT_KEYS:
        texts = [v.strip() for v in listed.split(",")]
        named = [n for t in texts for n in (weakest_first(t) if key == "device" and "*" in t else [t])]
        return Axis(key, tuple(dict.fromkeys(named)))
    values = _range(key, listed) if ":" in listed else tuple(_number(key, v) for v in listed.split(","))
    return Axis(key, tuple(dict.fromkeys(values)))


def weakest_first(pattern: str) -> list[str]:
    """Described devices by a pattern of the shell ("*" is all): by the multiply-accumulates a second of their fastest processor.
    Profiles have no prices; where money decides, name devices from the cheapest. Those without rates are left out.

    Raises UserError where none is left.
    """
    able = {p.name: max(rates_of(p).tera_macs_s.values()) for p in list_profiles() if any(map(line_of, p.processor))}
    found = sorted(fnmatch.filter(able, pattern), key=lambda name: (able[name], name))
    if not found:
        raise UserError(f"device={pattern}: no described device with rates matches; see 'edgeengine devices'")
    return found


def _known() -> str:
    return f"{', '.join(FACTORS + CHOICES)}, and TASK.KEY with {', '.join(TASK_KEYS)}"


def _range(key: str, text: str) -> tuple[float, ...]:
    parts = text.split(":")
    if len(parts) != 3 or not parts[2].isdigit() or not 2 <= int(parts[2]) <= 10_000:
        raise UserError(f"{key}={text}: a range is FROM:TO:COUNT, with a count from 2 to 10,000")
    low, high, count = _number(key, parts[0]), _number(key, parts[1]), int(parts[2])
    return tuple(low + (high - low) * i / (count - 1) for i in range(count))


def _number(key: str, text: str) -> float:
    try:
        value = float(text)
    except ValueError as e:
        raise UserError(f"{key}: {text!r} is not a number") from e
    if not 0 < value < 1e9:
        raise UserError(f"{key}: {text!r} must be a positive number below 1e9")
    return value


def points(axes: Sequence[Axis]) -> list[Point]:
    """Every combination, the last axis running fastest."""
    keys = [a.key for a in axes]
    twice = next((k for k in keys if keys.count(k) > 1), None)
    if twice is not None:
        raise UserError(f"{twice!r} is varied twice; give all its values at once")
    return [dict(zip(keys, values, strict=True)) for values in itertools.product(*(a.values for a in axes))]


def setting(workload: Workload, point: Mapping[str, Value]) -> Workload:
    """The workload at a point: keys of tasks first, then rates, then deadlines. Raises UserError where that could not run."""
    keys: dict[str, dict[str, object]] = {}
    for key, value in point.items():
        task, _, name = key.rpartition(".")
        if task:
            keys.setdefault(task, {})[name] = int(value) if name == "segments" else value
            if name in ("period_ms", "rate_hz"):  # the other way to say it gives way
                keys[task]["rate_hz" if name == "period_ms" else "period_ms"] = None
    if keys:
        workload = revised(workload, keys)
    rate, deadline = float(point.get("rate", 1.0)), float(point.get("deadline", 1.0))
    if rate != 1.0:
        workload = revised(workload, {t.name: _faster(t, rate) for t in workload.tasks})
    if deadline != 1.0:
        scaled = {t.name: t.relative_deadline_ns / 1e6 * deadline for t in workload.tasks if t.relative_deadline_ns is not None}
        workload = revised(workload, {name: {"deadline_ms": ms} for name, ms in scaled.items()})
    return workload


def _faster(task: Task, rate: float) -> dict[str, object]:
    """The release pattern `rate` times as fast; traces are what they are. A deadline that is the period follows it."""
    if task.period_ms is not None:
        return {"period_ms": task.period_ms / rate, "jitter_ms": task.jitter_ms / rate}
    if task.rate_hz is not None:
        return {"rate_hz": task.rate_hz * rate, "jitter_ms": task.jitter_ms / rate}
    arrivals = task.arrivals
    if arrivals is not None and arrivals.poisson is not None:
        return {"arrivals": msgspec.to_builtins(msgspec.structs.replace(arrivals, poisson=arrivals.poisson * rate))}
    if arrivals is not None and arrivals.bursty is not None:
        phases = tuple(msgspec.structs.replace(p, rate_hz=p.rate_hz * rate) for p in arrivals.bursty)
        return {"arrivals": msgspec.to_builtins(msgspec.structs.replace(arrivals, bursty=phases))}
    return {}
