"""Whether a processor can be trusted: faults in a row, what a good run gave, and when to try a lost one again.

A circuit breaker per processor (M. Nygard, Release It!, 2nd ed. 2018, ch. 5): some faults in a row open it, a probe closes it.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from edgeengine.devices.providers import Executable
from edgeengine.devices.providers.base import Tensors
from edgeengine.errors import DeviceLost

FAULTS = 3  # in a row
FIRST_PROBE_NS, LONGEST_PROBE_NS = 250_000_000, 30_000_000_000
STEADY = 3  # good runs after which a processor that came back is like any other
GROSS = 0.05  # of an output's range: float16 and int8 differ by a fifth of it, garbage by more

Key = tuple[str, str]  # task, subgraph


class Health:
    """Of one processor; its worker's alone. `pause_ns`: how long to wait before the next probe."""

    def __init__(self) -> None:
        self._faults, self._good, self.pause_ns = 0, 0, FIRST_PROBE_NS

    def good_run(self) -> None:
        self._faults = 0
        if self._good < STEADY:
            self._good += 1
            if self._good == STEADY:
                self.pause_ns = FIRST_PROBE_NS

    def fault(self, error: BaseException | None = None) -> bool:
        """Count a fault; True when the processor must start nothing more."""
        self._faults += 1
        return isinstance(error, DeviceLost) or self._faults >= FAULTS

    def probe_failed(self) -> None:
        self.pause_ns = min(2 * self.pause_ns, LONGEST_PROBE_NS)

    def back(self) -> None:
        """A probe went well. Until some runs did too, the next loss lasts longer."""
        self._faults = self._good = 0
        self.probe_failed()


class Samples:
    """Inputs and outputs of the first good run of each subgraph, on whatever processor: what a probe runs and compares with.

    They are kept for the life of the engine: the tensors of one job per task. With `check` outputs of models are looked at.
    """

    def __init__(self, check: bool = True):
        self.check = check
        self._kept: dict[Key, tuple[Tensors, Tensors]] = {}

    def keep(self, key: Key, feeds: Tensors, outputs: Tensors) -> None:
        if key not in self._kept:
            self._kept[key] = (dict(feeds), {n: a.copy() for n, a in outputs.items()})  # the caller may write to its results

    def probe(self, key: Key, executable: Executable, failed: Tensors) -> bool:
        """Run once; whether it gave what it should. Without a good run to compare with it runs on zeros shaped as `failed`, so
        that one poisonous input does not condemn the processor.
        """
        feeds, expected = self._kept.get(key) or ({n: np.zeros_like(a) for n, a in failed.items()}, None)
        try:
            outputs = executable.run(feeds)
        except Exception:  # noqa: BLE001  that it raises is the answer
            return False
        if expected is None:
            return nan_in(outputs, outputs) is None
        return all(name in outputs and _alike(outputs[name], array) for name, array in expected.items())


def nan_in(tensors: Tensors, names: Iterable[str]) -> str | None:
    """The first of these tensors that holds NaN."""
    for name in names:
        array = tensors.get(name)
        if array is not None and array.dtype.kind == "f" and np.isnan(array).any():
            return name
    return None


def _alike(one: np.ndarray, other: np.ndarray) -> bool:
    if one.shape != other.shape or one.dtype != other.dtype:
        return False
    if other.dtype.kind not in "fiu" or not other.size:
        return True
    a, b = one.astype(np.float64), other.astype(np.float64)
    finite = np.isfinite(b)
    if not np.array_equal(np.isfinite(a), finite):
        return False
    if not finite.any():
        return True
    return bool(np.abs(a[finite] - b[finite]).max() <= GROSS * max(np.ptp(b[finite]), np.abs(b[finite]).max()))
