"""Search under a budget: which configurations to measure when not all can be, and what they say of the rest.

The space is (range of segments) x (processor, with its threads) x (batch). What is sought is, for each batch, the chain from the
model's input to its output of least total latency, as the mapper ranks chains. Predict what was not measured, measure what
promises most, anneal the rest: so Memeti and Pllana ("Optimization of heterogeneous systems with AI planning heuristics and
machine learning", Computing 2021), near-optimal after 7 % of the configurations. A chain being a shortest path, the annealing is
exact here: dynamic programming finds the best one under the predictions, and only what lies on it is measured, as lazy shortest
paths do (Dellin, Srinivasa, "A unifying formalism for shortest path problems with expensive edge evaluations", ICAPS 2016).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from edgeengine.profiling.features import Configuration
from edgeengine.profiling.predictor import Prediction
from edgeengine.spec import Processor

HANDOVER_NS = 40_000  # ranking only: a change of processor inside a chain
_SPREAD = 0.4  # of the budget, before chains are followed
_STEP = 0.08  # of the budget, measured between two fits
_OPTIMISM = 1.0  # standard deviations an unmeasured latency is believed to be below its prediction

Measure = Callable[[Sequence[Configuration]], Sequence[float]]
Chain = tuple[int, ...]  # indices of configurations


class Model(Protocol):
    """Predicts all configurations from latencies in nanoseconds by index, as `Predictor` does."""

    def fit(self, measured: Mapping[int, float]) -> Prediction: ...


@dataclass
class Search:
    """`measure` returns the median latencies in nanoseconds of what it is given, measured in turn; at most `budget` of them.

    `measured` grows, by index into `configurations`.
    """

    configurations: Sequence[Configuration]
    segments: int
    model: Model
    measure: Measure
    budget: int
    rng: np.random.Generator
    measured: dict[int, float] = field(default_factory=dict)

    def run(self) -> Prediction:
        """Measure until the budget is spent, and predict all from that.

        First the whole model everywhere, and some at random, which tell the costs of segments apart. Then what lies on the chains
        that would be best if all that is unmeasured were as fast as it may be; once those are measured, what is least certain.
        """
        whole = [i for i, c in enumerate(self.configurations) if c.subgraph.stop - c.subgraph.start == self.segments]
        self._measure(whole)
        rest = [int(i) for i in self.rng.permutation(len(self.configurations)) if i not in self.measured]
        self._measure(rest[: max(0, round(self.budget * _SPREAD) - len(whole))])
        step = max(1, round(self.budget * _STEP))
        while self.left:
            prediction = self._predict()
            self._measure((self._promising(prediction) or self._uncertain(prediction))[:step])
        return self._predict()

    @property
    def left(self) -> int:
        return min(self.budget, len(self.configurations)) - len(self.measured)

    @property
    def batches(self) -> list[int]:
        return sorted({c.batch for c in self.configurations})

    def chains(self) -> dict[int, Chain]:
        """What is picked: by batch, the best chain wholly measured."""
        return {b: best_chain(self.configurations, self.measured, self.segments, b)[0] for b in self.batches}

    def _predict(self) -> Prediction:
        return self.model.fit({i: ns for i, ns in self.measured.items() if np.isfinite(ns)})

    def _promising(self, prediction: Prediction) -> list[int]:
        """The unmeasured configurations of the optimistic best chains, the longest first."""
        costs = dict(enumerate(prediction.median_ns * np.exp(-_OPTIMISM * prediction.deviation))) | self.measured
        chains = [best_chain(self.configurations, costs, self.segments, b)[0] for b in self.batches]
        return sorted({i for chain in chains for i in chain if i not in self.measured}, key=lambda i: (-costs[i], i))

    def _uncertain(self, prediction: Prediction) -> list[int]:
        return [int(i) for i in np.argsort(-prediction.deviation, kind="stable") if int(i) not in self.measured]

    def _measure(self, chosen: Sequence[int]) -> None:
        chosen = list(chosen)[: self.left]
        if chosen:
            latencies = self.measure([self.configurations[i] for i in chosen])
            self.measured |= dict(zip(chosen, map(float, latencies), strict=True))


def best_chain(
    configurations: Sequence[Configuration], costs: Mapping[int, float], segments: int, batch: int
) -> tuple[Chain, float]:
    """The chain of least total cost at `batch` among the configurations in `costs` (ns), and that total; ((), inf) if none.

    Dynamic programming over (position, processor): a change of processor costs HANDOVER_NS.
    """
    best: list[dict[str, tuple[float, Chain]]] = [{} for _ in range(segments + 1)]
    best[0][""] = (0.0, ())
    usable = [i for i in costs if configurations[i].batch == batch]
    for i in sorted(usable, key=lambda i: configurations[i].subgraph.start):
        subgraph, processor, _ = configurations[i]
        for before, (so_far, chain) in best[subgraph.start].items():
            total = so_far + costs[i] + (HANDOVER_NS if before not in ("", processor.name) else 0)
            if total < best[subgraph.stop].get(processor.name, (np.inf,))[0]:
                best[subgraph.stop][processor.name] = (total, (*chain, i))
    total, chain = min(best[segments].values(), default=(np.inf, ()))
    return chain, total


def equivalent(processors: Sequence[Processor]) -> list[list[Processor]]:
    """Processors that differ only in which core they hold (core 0 and core 1 of one kind): one stands for all.

    An accelerator is alone: two of one provider may be unlike (integrated, discrete).
    """
    groups: dict[tuple[object, ...], list[Processor]] = {}
    for p in processors:
        own = "" if p.kind == "cpu" else p.name
        groups.setdefault((p.provider, p.kind, p.core_kind, p.threads, p.emulated, p.options, own), []).append(p)
    return list(groups.values())
