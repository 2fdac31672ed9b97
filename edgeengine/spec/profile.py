"""Measured latencies: what one subgraph costs on one processor under one condition, and what the machine itself costs."""

from __future__ import annotations

import bisect
import math

import msgspec

from edgeengine.spec.placement import Placement

# How a row ended that nobody measured: by a model of such rows, or from little more than the number of operations.
PREDICTED, ESTIMATED = "predicted", "estimated"

# The stored quantiles of a latency distribution, in percent. Dense at the top: deadlines live in the tail.
QUANTILES = (0, 5, 10, 20, 30, 40, 50, 60, 70, 80, 90, 95, 99, 100)
P50, P90, P99 = (QUANTILES.index(q) for q in (50, 90, 99))


class Latency(msgspec.Struct, frozen=True, omit_defaults=True):
    """A latency distribution in nanoseconds: `n` samples seen through the quantiles of QUANTILES, least first.

    Of `n` samples only one reaches the maximum, so that a line from the p99 to it makes a rare long run far too common. Where
    `tail` is given, what lies above the p99 is Pareto's instead: the quantile with q left above it is p99 (q / 0.01)^-tail.
    A predicted one has no samples (`n` 0). Raises ValueError for what is no distribution, also when a file is decoded.
    """

    n: int
    quantiles_ns: tuple[int, ...]
    tail: float = 0.0

    def __post_init__(self) -> None:
        q = self.quantiles_ns
        if self.n < 0 or len(q) not in (len(QUANTILES), 0) or (self.n and not q) or list(q) != sorted(q):
            raise ValueError(f"no latency: {self.n} samples with {len(q)} quantiles; {len(QUANTILES)} in rising order are wanted")

    @classmethod
    def of(cls, samples_ns: list[int]) -> Latency:
        """Summarise samples (at least one). A quantile is the sample whose rank is nearest to (n - 1) p: each was measured."""
        ordered = sorted(samples_ns)
        last = len(ordered) - 1
        return cls(n=len(ordered), quantiles_ns=tuple(ordered[round(last * q / 100)] for q in QUANTILES))

    @classmethod
    def constant(cls, value_ns: int) -> Latency:
        return cls(n=1, quantiles_ns=(value_ns,) * len(QUANTILES))

    @classmethod
    def pooled(cls, parts: list[Latency]) -> Latency:
        """The distribution of all samples together, each part spread over its own quantiles."""
        if len(parts) == 1:
            return parts[0]
        return cls.of([part.at(100 * (k + 0.5) / part.n) for part in parts for k in range(part.n)])

    def scaled(self, factor: float) -> Latency:
        """The same distribution, every quantile times `factor`."""
        return Latency(self.n, tuple(round(q * factor) for q in self.quantiles_ns), self.tail)

    def at(self, percent: float) -> int:
        """The quantile at `percent` (0..100), linear between the stored ones but for a tail."""
        if self.tail and 99 < percent < 100:
            return min(round(self.p99_ns * math.pow(100 - percent, -self.tail)), self.max_ns)
        hi = bisect.bisect_left(QUANTILES, percent)
        if QUANTILES[hi] == percent or hi == 0:
            return self.quantiles_ns[hi]
        a, b = QUANTILES[hi - 1], QUANTILES[hi]
        low, high = self.quantiles_ns[hi - 1], self.quantiles_ns[hi]
        return round(low + (high - low) * (percent - a) / (b - a))

    @classmethod
    def none(cls) -> Latency:
        """No samples: what was not measured. It has no quantiles, so that it cannot be taken for a latency."""
        return cls(n=0, quantiles_ns=())

    @property
    def min_ns(self) -> int:
        return self.quantiles_ns[0]

    @property
    def p50_ns(self) -> int:
        return self.quantiles_ns[P50]

    @property
    def p90_ns(self) -> int:
        return self.quantiles_ns[P90]

    @property
    def p99_ns(self) -> int:
        return self.quantiles_ns[P99]

    @property
    def max_ns(self) -> int:
        return self.quantiles_ns[-1]


class ProfileRow(msgspec.Struct, frozen=True):
    """One measurement. Key: (bundle hash, device, processor, subgraph, shapes, condition).

    `condition` is "back_to_back" or "period:<ms>". `shapes` is the canonical text of all input shapes, with the values of lone
    integers: a row is never reused for others. `first_run_ns` and `create_ns` (session creation) are kept apart from the steady
    state. `resident_bytes` is the growth of a process by the session alone, None where it could not be read. `half_width` is half
    the 95 % confidence interval of the median, as a share of it; `ended` says whether measuring stopped because that was narrow
    enough ("width"), because time was up ("budget"), because it was "interrupted", or because it "failed"; a row that ended
    PREDICTED was not measured, and no store keeps it. `verdict` is of the outputs against the reference: "ok", "wrong",
    "unchecked", or "failed" where it could not be loaded or run; `max_diff` is the greatest difference, as a share of the range
    of the output, and `reason` says what is not right. `denormals` counts such values in the outputs, `denormal_weights` those
    in the weights: they slow a CPU down many times. `switch_ns` is what a run takes longer after another subgraph ran on the
    processor. A row for a described device was not measured either: it ends "predicted" or "estimated" (see TaskPlan.basis), and
    its median lies within `interval_ns` with a probability of 90 %.
    `governor` is the clock policy of `cores` where it can be read. `options` are those of the processor.
    """

    bundle: str
    device: str
    processor: str
    subgraph: str
    shapes: str
    condition: str
    latency: Latency
    first_run_ns: int
    create_ns: int
    resident_bytes: int | None
    measured_at: str
    versions: dict[str, str]
    placement: Placement | None = None
    half_width: float | None = None
    ended: str = "budget"
    verdict: str = "unchecked"
    max_diff: float | None = None
    denormals: int = 0
    denormal_weights: int = 0
    cores: tuple[int, ...] = ()
    governor: str = ""
    switch_ns: int | None = None
    reason: str = ""
    options: tuple[tuple[str, str], ...] = ()
    interval_ns: tuple[int, int] | None = None

    @property
    def measured(self) -> bool:
        return self.ended not in (PREDICTED, ESTIMATED)

    @property
    def usable(self) -> bool:
        """False for what failed or answers wrong: no plan may use it."""
        return self.verdict not in ("failed", "wrong")

    @property
    def key(self) -> tuple[str, str, str, str, str, str]:
        return (self.bundle, self.device, self.processor, self.subgraph, self.shapes, self.condition)


class MachineRow(msgspec.Struct, frozen=True):
    """A cost of the machine itself, of no bundle. By `name`:

    - of the engine: "timer" (late wake-ups), "handoff" (event to start on an idle worker), …; "around:<task>" is what a worker
      spends beside the runs of that task's subgraphs;
    - of a processor: "launch:<processor>" (a run that computes nothing), "node:<processor>" (one more node in it),
      "compute:<processor>" and "memory:<bytes>:<processor>" (products of a known `amount` of MACs, or of bytes read: the fewer,
      the nearer the cache they are read from), "switch:<processor>" (what a run takes longer after another subgraph's);
    - between memories: "transfer:host:host:<bytes>" (a copy), "transfer:host:<processor>:<bytes>" (there and back);
    - of two processors: "beside:compute:<a>:<b>", "beside:memory:<bytes>:<a>:<b>": a load on a while b runs it too, `factor`
      times as long as alone.
    """

    device: str
    name: str
    latency: Latency
    measured_at: str
    amount: int = 0
    factor: float = 1.0

    @property
    def per_second(self) -> float:
        """MACs or bytes per second."""
        return self.amount / max(self.latency.p50_ns, 1) * 1e9
