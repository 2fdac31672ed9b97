"""The profiler as the choice of formulations calls it: small models timed in turn on one processor of this machine."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from edgeengine.bundle import WEIGHTS, Bundle
from edgeengine.errors import DeviceError
from edgeengine.spec import Manifest, Processor
from edgeengine.spec.bundle import SCHEMA, Exactness

if TYPE_CHECKING:
    from edgeengine.devices.providers import Provider

_ROUNDS = 9

Run = Callable[[Mapping[str, np.ndarray]], object]


class Racer:
    """Callable as race(models, feeds) -> median nanoseconds, None for a model that the processor does not take wholly.

    Each round runs every model twice, the second run counts: drift hits all alike. An accelerator is met in a child process.
    """

    def __init__(self, processor: Processor):
        self._processor = processor

    def __call__(self, models: Sequence[bytes], feeds: Mapping[str, np.ndarray]) -> list[float | None]:
        from edgeengine.devices.providers import load_providers
        from edgeengine.devices.threads import run_pinned

        provider = load_providers()[self._processor.provider]
        try:
            with tempfile.TemporaryDirectory(prefix="edgeengine-") as name:
                folder = Path(name)
                runs = [self._loaded(provider, folder, k, model) for k, model in enumerate(models)]
                times: list[list[int]] = [[] for _ in models]

                def race() -> None:
                    for _ in range(_ROUNDS):
                        for run, taken in zip(runs, times, strict=True):
                            if run is not None:
                                run(feeds)
                                begun = time.perf_counter_ns()
                                run(feeds)
                                taken.append(time.perf_counter_ns() - begun)

                run_pinned(self._processor, race)
        finally:
            provider.close()
        return [float(np.median(t)) if t else None for t in times]

    def _loaded(
        self, provider: Provider, folder: Path, k: int, model: bytes
    ) -> Callable[[Mapping[str, np.ndarray]], object] | None:
        """The model as a bundle of one graph, on the processor."""
        from edgeengine.training.placed import On, PlacedGraph

        name, weights = f"candidate{k}", folder / WEIGHTS
        weights.parent.mkdir(exist_ok=True)
        weights.touch()
        (folder / f"{name}.onnx").write_bytes(model)
        nothing = Exactness(0, False, 0.0, 0.0, 0.0)
        manifest = Manifest(SCHEMA, name, name, "", {}, 10, {}, (), (), {}, 1, (), {}, nothing)
        try:
            graph = PlacedGraph(Bundle(folder, name, manifest), name, f"{name}.onnx", On(provider, self._processor, 1))
        except DeviceError:
            return None
        placement, outputs = graph.placement, [o.name for o in graph.get_outputs()]
        if placement is not None and placement.nodes.keys() - {self._processor.provider}:
            return None
        return lambda feeds: graph.run(outputs, feeds)
