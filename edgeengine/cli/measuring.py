"""The profiler as the cut search calls it: latencies of the parts of a trial bundle on one processor of this machine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from edgeengine.bundle import Bundle
from edgeengine.spec import SubgraphSpec

# Trials of slow models: each is one of many, and the best are measured again.
_MIN_ROUNDS = 3


class Measurer:
    """Callable as measure(bundle, subgraphs) -> p50 in nanoseconds; the model's inputs are `inputs`, or else random."""

    def __init__(
        self,
        inputs: Mapping[str, np.ndarray],
        processor: str | None = None,
        seconds: float = 0.5,
        options: Mapping[str, Mapping[str, str]] | None = None,
    ):
        """`seconds` is for one trial; `options` by processor.

        Raises UserError for an unknown processor or option, PlanInfeasible where none is usable.
        """
        from edgeengine.cli.resolve import choose_processors

        self._inputs, self._seconds = dict(inputs), seconds
        self.processor = next(p for p in choose_processors([processor] if processor else None, options=options) if p.usable)

    def __call__(self, bundle: Bundle, subgraphs: Sequence[SubgraphSpec]) -> list[float]:
        """Each part as it runs in the chain of all parts, and the whole, run in turn with them."""
        from edgeengine.devices.providers import load_providers
        from edgeengine.io import make_source
        from edgeengine.profiling import Candidate, measure_steps
        from edgeengine.spec import TensorSpec

        manifest = bundle.manifest
        specs = [TensorSpec(s.name, s.dtype, manifest.shapes[s.name]) for s in manifest.inputs]
        given = {s.name: np.asarray(self._inputs[s.name], s.dtype).reshape(s.dims) for s in specs if s.name in self._inputs}
        rest = [s for s in specs if s.name not in given]
        inputs = given | (make_source("random:0", rest).read(0, 0) if rest else {})
        candidates = [Candidate(bundle, s, self.processor) for s in subgraphs]
        parts, whole = candidates[: manifest.segments], candidates[manifest.segments :]
        providers = load_providers()
        try:
            chains = [c for c in (parts, whole) if c]
            measured = measure_steps(chains, inputs, providers, budget_s=self._seconds, min_rounds=_MIN_ROUNDS)
        finally:
            for provider in providers.values():
                provider.close()
        return [float(latency.p50_ns) for chain in measured for latency in chain]
