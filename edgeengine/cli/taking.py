"""What a processor of this machine takes of a model, as `edgeengine split --for` asks."""

from __future__ import annotations

from collections.abc import Mapping

from edgeengine.bundle import Bundle
from edgeengine.errors import DeviceError
from edgeengine.spec import Latency, Placement, Step, SubgraphSpec


class Taker:
    """Callable as left(bundle) -> node name -> why the processor leaves it, for a bundle of one subgraph."""

    def __init__(self, processor: str, options: Mapping[str, Mapping[str, str]] | None = None):
        """Raises UserError for an unknown processor or option, PlanInfeasible where it is unusable."""
        from edgeengine.cli.resolve import choose_processors

        self.processor = choose_processors([processor], options=options, flag="--for")[0]

    def __call__(self, bundle: Bundle) -> dict[str, str]:
        (placement,) = self.placements(bundle, bundle.manifest.subgraphs)
        return {name: f.reason for f in placement.fallback for name in f.nodes}

    def placements(self, bundle: Bundle, subgraphs: tuple[SubgraphSpec, ...]) -> list[Placement]:
        """What became of each on the processor. Raises DeviceError where one cannot be loaded or nothing is told."""
        from edgeengine.devices.providers import load_providers

        provider = load_providers()[self.processor.provider]
        try:
            steps = [Step(s.name, s.start, s.stop, self.processor.name, Latency.constant(1)) for s in subgraphs]
            found = [provider.load(bundle, step, self.processor).placement for step in steps]
        finally:
            provider.close()
        if None in found:
            raise DeviceError(f"{self.processor.provider} does not tell which nodes it takes: split another way")
        return [p for p in found if p is not None]
