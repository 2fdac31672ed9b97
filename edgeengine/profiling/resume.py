"""What need not be measured again: rows in the store that are complete, for these shapes, options and versions."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from edgeengine.devices.providers.base import Tensors
from edgeengine.profiling.back_to_back import BACK_TO_BACK
from edgeengine.profiling.candidate import Candidate, shapes_text
from edgeengine.profiling.conditions import versions
from edgeengine.spec import ProfileRow


def resume(
    candidates: Sequence[Candidate], tensors: dict[str, Tensors], stored: Iterable[ProfileRow], width: float | None
) -> tuple[list[Candidate], list[ProfileRow]]:
    """(what is left to measure, the rows of all else), both in the order of `candidates`.

    A row counts if it was measured to within `width` (None: however wide), or found to answer wrong. A subgraph is measured
    anew on all processors unless it is complete on all: figures that are compared come from one stretch of time.
    """
    now = versions()
    good = {
        (r.bundle, r.subgraph, r.processor, r.options, r.shapes): r
        for r in stored
        if r.condition == BACK_TO_BACK and r.versions == now and _known(r, width)
    }
    rows = [
        good.get((*c.unit, c.processor.name, c.processor.options, shapes_text(c.subgraph, tensors[c.bundle.hash])))
        for c in candidates
    ]
    left = {c.unit for c, row in zip(candidates, rows, strict=True) if row is None}
    return [c for c in candidates if c.unit in left], [
        r for c, r in zip(candidates, rows, strict=True) if r is not None and c.unit not in left
    ]


def _known(row: ProfileRow, width: float | None) -> bool:
    if not row.measured:  # by a version that kept these
        return False
    if row.verdict == "wrong":
        return True
    return row.latency.n > 0 and (width is None or (row.half_width is not None and row.half_width <= width))
