"""What makes a subgraph slower than its profile says: neighbours on the same memory, heat, a first run, tensors that travel."""

from __future__ import annotations

import msgspec


class Throttle(msgspec.Struct, frozen=True):
    """How heat slows a processor: its load, averaged with time constant `tau_s`, may stay up to `sustained` (0..1) without harm;
    from there to a load of 1 its latencies grow linearly to `slowest` (a factor, at least 1).
    """

    tau_s: float
    sustained: float
    slowest: float


class Link(msgspec.Struct, frozen=True):
    """Between the memories of two processors, either way: `latency_ns` for each transfer, and its bytes at `bytes_per_s`."""

    one: str
    other: str
    latency_ns: int
    bytes_per_s: float

    def transfer_ns(self, nbytes: int) -> int:
        return self.latency_ns + round(nbytes / self.bytes_per_s * 1e9)


class Effects(msgspec.Struct, frozen=True):
    """`slowdown[a][b]`: by which factor (at least 1) processor a's latencies grow while b runs. `throttle` by processor.
    `links` join memories ("host", or as Processor.memory says); without one a transfer costs nothing. `first_run` by processor:
    the factor on the first run of each subgraph there.
    """

    slowdown: dict[str, dict[str, float]] = {}
    throttle: dict[str, Throttle] = {}
    links: tuple[Link, ...] = ()
    first_run: dict[str, float] = {}

    def transfer_ns(self, source: str, target: str, nbytes: int) -> int:
        """What it costs to bring `nbytes` from one memory to another."""
        if source == target:
            return 0
        return next((k.transfer_ns(nbytes) for k in self.links if {k.one, k.other} == {source, target}), 0)
