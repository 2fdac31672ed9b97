"""Sizing: the highest rate, the cheapest device, the largest model that still meets the deadlines."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from edgeengine.sweeps.point import Answer, Question, answer
from edgeengine.sweeps.space import Axis, Value

PRECISION = 0.01  # of the value found


@dataclass(frozen=True)
class Found:
    """`value`: the best feasible one, None if there is none. `confirmed`: its answer with fresh seeds that the search has not
    seen, with the interval of each miss rate. `tried`: every value asked, with its feasibility, in the order asked.
    """

    key: str
    value: Value | None
    confirmed: Answer | None
    tried: list[tuple[Value, bool]]


def find(question: Question, axis: Axis, progress: Callable[[str], None] | None = None) -> Found:
    """The best value of one axis, the other settings as they are.

    Of numbers: between the least and the greatest given, the largest feasible one to 1 %, by bisection (the smallest, for periods
    and deadlines, of which less is harder): feasibility is taken to change once. Of names: the first feasible in the order
    given, so list devices from the cheapest, models from the largest.
    """
    tried: list[tuple[Value, bool]] = []

    def feasible(value: Value) -> bool:
        found = bool(answer(question, {axis.key: value})["feasible"])
        tried.append((value, found))
        if progress is not None:
            progress(f"{axis.key} = {value}: {'feasible' if found else 'not feasible'}")
        return found

    if axis.numeric:
        numbers = [float(v) for v in axis.values]
        ends = (min(numbers), max(numbers))
        value: Value | None = _bisect(feasible, *(reversed(ends) if _less_is_harder(axis.key) else ends))
    else:
        value = next((v for v in axis.values if feasible(v)), None)
    confirmed = None
    if value is not None:
        confirmed = answer(replace(question, seed=question.seed + question.seeds), {axis.key: value})
    return Found(axis.key, value, confirmed, tried)


def _less_is_harder(key: str) -> bool:
    return key.rpartition(".")[2] in ("period_ms", "deadline_ms", "deadline")


def _bisect(feasible: Callable[[Value], bool], easy: float, hard: float) -> float | None:
    """The feasible value nearest to `hard`, to PRECISION; None where even `easy` is not."""
    if not feasible(easy):
        return None
    if feasible(hard):
        return hard
    while abs(hard - easy) > PRECISION * easy:
        middle = (easy + hard) / 2
        easy, hard = (middle, hard) if feasible(middle) else (easy, middle)
    return easy
