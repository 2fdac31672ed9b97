"""Cut by measured time: the parts of a cut are measured, what their units cost is corrected by it, and the cut is made anew.

Times of single nodes are never added up; a unit's share of its part's measured time is only what the next attempt is
chosen by. How many subgraphs may be measured is a budget, and how many were is told.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from edgeengine.bundle import Bundle
from edgeengine.errors import UserError
from edgeengine.graph.candidates import Range, Writer, finest
from edgeengine.graph.frontier import Cuts, Segmentation
from edgeengine.graph.load import Model
from edgeengine.graph.manifest import encode, manifest_of
from edgeengine.graph.units import describe
from edgeengine.spec.bundle import SubgraphSpec

# Measures subgraphs of a trial bundle, in turn, so that drift hits all alike: the parts of a chain from the model's inputs
# on, then the whole. One latency each, in nanoseconds.
Measure = Callable[[Bundle, Sequence[SubgraphSpec]], Sequence[float]]

# Aim below the limit: what is measured once more may be a little slower.
_MARGIN = 0.95
# How uneven the parts of an attempt may be estimated, in equal shares, one attempt each; and measured, where any is so
# even. Of those the least sum wins, near-ties by the longest part.
_SLACKS = (1.25, 1.5, 2.0, 2.0)
_UNEVEN = 2.0
_EVENNESS = 0.1


@dataclass
class _Attempt:
    """A cut, its parts as measured, and the whole as measured between them: what attempts are compared by."""

    segmentation: Segmentation
    measured_ns: np.ndarray
    whole_ns: float

    @property
    def longest_ns(self) -> float:
        return float(self.measured_ns.max())

    @property
    def score(self) -> float:
        """The sum of the parts over the whole, near-ties by the longest."""
        return float(self.measured_ns.sum() + _EVENNESS * self.longest_ns) / max(self.whole_ns, 1.0)


@dataclass
class Timer:
    """Measures cuts of one model within a budget of subgraphs. `used` counts those measured."""

    original: Model
    cuts: Cuts
    writer: Writer
    measure: Measure
    budget: int
    used: int = 0
    attempts: list[_Attempt] = field(default_factory=list)

    def whole(self) -> Segmentation:
        """The model uncut, measured."""
        return self._told(self._try(self.cuts.by_count(1)))

    def latencies(self, segmentation: Segmentation) -> list[float]:
        """Of the parts of a cut that was measured, in nanoseconds."""
        return next(a.measured_ns.tolist() for a in self.attempts if a.segmentation.segments == segmentation.segments)

    def by_count(self, parts: int) -> Segmentation:
        """`parts` parts of about equal measured time, of the least in sum. Raises UserError as `Cuts.by_count` does."""
        costs = self.cuts.unit_costs
        tried: set[tuple[tuple[int, ...], ...]] = set()
        segmentation = self.cuts.by_count(parts, costs)
        # From even to uneven: a looser balance reaches boundaries that cost less.
        for slack in (None, *_SLACKS):
            if slack is not None:
                with contextlib.suppress(UserError):
                    segmentation = self.cuts.by_count(parts, costs, slack)
            if segmentation.segments in tried or parts == 1 or not self._affordable(parts):
                continue
            tried.add(segmentation.segments)
            costs = self._corrected(costs, self._try(segmentation))
        if not self.attempts:
            return segmentation
        even = [a for a in self.attempts if a.longest_ns <= _UNEVEN * a.measured_ns.mean()]
        return self._told(min(even or self.attempts, key=lambda a: a.score))

    def by_limit(self, limit_ns: float) -> Segmentation:
        """As few parts as possible, none measured over `limit_ns`.

        Raises UserError naming the unit that alone takes longer, and when the budget ends before such a cut is found.
        """
        whole = self._try(self.cuts.by_count(1))
        if whole.longest_ns <= limit_ns:
            return self._told(whole)
        costs = self._corrected(self.cuts.unit_costs, whole)
        alone: dict[int, float] = {}
        best: _Attempt | None = None
        while True:
            self._refuse_slow_unit(alone, limit_ns)
            # A unit estimated over the limit is measured alone before it is believed.
            aimed = np.minimum(costs, limit_ns * _MARGIN)
            segmentation = self.cuts.by_limit(aimed, limit_ns * _MARGIN)
            if segmentation is None:
                raise self._impossible(limit_ns)
            known = {a.segmentation.segments for a in self.attempts}
            fewer = best is None or len(segmentation.segments) < len(best.segmentation.segments)
            if segmentation.segments in known or not fewer or not self._affordable(len(segmentation.segments)):
                break
            attempt = self._try(segmentation)
            if attempt.longest_ns <= limit_ns:
                best = attempt
            costs = self._corrected(costs, attempt)
            for units, ns in zip(self.cuts.unit_of(segmentation), attempt.measured_ns, strict=True):
                if len(units) == 1:
                    alone[units[0]] = min(float(ns), alone.get(units[0], np.inf))
        if best is None:
            reached = min(self.attempts, key=lambda a: a.longest_ns)
            raise UserError(
                f"{self.original.path}: no cut with parts under {limit_ns / 1e6:.3g} ms among {self.used} subgraphs measured "
                f"(at most {self.budget}); {len(reached.segmentation.segments)} parts reach {reached.longest_ns / 1e6:.3g} ms: "
                f"allow that, or more measurements"
            )
        return self._told(best)

    def _affordable(self, parts: int) -> bool:
        return self.used + parts + 1 <= self.budget

    def _try(self, segmentation: Segmentation) -> _Attempt:
        count = len(segmentation.segments)
        chain: list[Range] = finest(count) + ([(0, count)] if count > 1 else [])
        trial = self.writer.write(segmentation, chain, stem=f"trial{self.used}_")
        manifest = manifest_of(self.original, trial)
        bundle = Bundle(self.writer.folder, hashlib.sha256(encode(manifest)).hexdigest(), manifest)
        try:
            measured = np.asarray(self.measure(bundle, trial.subgraphs), np.float64)
        finally:
            for subgraph in trial.subgraphs:
                bundle.file(subgraph).unlink()
        self.used += len(chain)
        attempt = _Attempt(segmentation, measured[:count], float(measured[-1]))
        self.attempts.append(attempt)
        return attempt

    def _corrected(self, costs: np.ndarray, attempt: _Attempt) -> np.ndarray:
        """Unit costs in nanoseconds, those of each part scaled to its measured time."""
        result = np.array(costs, np.float64)
        for units, ns in zip(self.cuts.unit_of(attempt.segmentation), attempt.measured_ns, strict=True):
            before = result[units].sum()
            result[units] = result[units] * (ns / before) if before > 0 else ns / max(1, len(units))
        return result

    def _refuse_slow_unit(self, alone: dict[int, float], limit_ns: float) -> None:
        slowest = max(alone, key=alone.__getitem__, default=None)
        if slowest is not None and alone[slowest] > limit_ns:
            raise UserError(
                f"{self.original.path}: parts under {limit_ns / 1e6:.3g} ms are impossible: unit "
                f"{describe(self.cuts.flow, self.cuts.units[slowest])} alone takes {alone[slowest] / 1e6:.3g} ms and cannot be "
                f"cut (the most is {self.cuts.most} parts); give at least {alone[slowest] / 1e6 * 1.05:.3g} ms"
            )

    def _impossible(self, limit_ns: float) -> UserError:
        return UserError(
            f"{self.original.path}: parts under {limit_ns / 1e6:.3g} ms are impossible within the limits of a boundary, the most "
            f"is {self.cuts.most} parts: unit {self.cuts.largest()} cannot be cut"
        )

    def _told(self, attempt: _Attempt) -> Segmentation:
        times = ", ".join(f"{ns / 1e6:.3g}" for ns in attempt.measured_ns)
        note = f"measured {self.used} of at most {self.budget} subgraphs; the parts take {times} ms"
        return Segmentation(attempt.segmentation.segments, (*attempt.segmentation.notes, note))
