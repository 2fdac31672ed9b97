"""Costs: what a graph of known features takes on a described processor.

    latency = call + sum over classes of work of (cost of the class x amount), all costs non-negative

Every multiply-accumulate costs `mac`, one of a class its own cost on top: so work of a class that was never measured is not
free, and a whole never costs more than its parts. The form is that of roofline models without overlap (Williams, Waterman,
Patterson, CACM 2009), with costs per operator as in nn-Meter (Zhang et al., MobiSys 2021). The costs of a processor are figures
of its device profile, fitted by tools/profiles/costs.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from edgeengine.spec.device import Figure
from edgeengine.spec.features import Features

SPREAD = "spread"  # of what was measured about what is predicted: a factor about 1, its bounds at 90 %

MILLION, BILLION = 1e6, 1e9
PER_GMAC, PER_MILLION, EACH = "ms/GMAC", "ms/million", "ms"

# Cost -> its unit; `amounts` gives how much of it a graph asks for.
COSTS = {
    "call": EACH,
    "mac": PER_GMAC,
    "dense": PER_GMAC,
    "pointwise": PER_GMAC,
    "grouped": PER_GMAC,
    "depthwise": PER_GMAC,
    "fc": PER_GMAC,
    "attention": PER_GMAC,
    "parameters": PER_MILLION,
    "activations": PER_MILLION,
    "convolution": EACH,
    "depthwise_convolution": EACH,
    "operator": EACH,
}


class Predicted(NamedTuple):
    """Milliseconds: the median, and what bounds it at 90 %."""

    median_ms: float
    low_ms: float
    high_ms: float


def amounts(f: Features) -> dict[str, float]:
    """How much of each of COSTS a graph asks for, in their units."""
    classes = ("dense", "pointwise", "grouped", "depthwise", "fc", "attention")
    return {
        "call": 1.0,
        "mac": f.macs / BILLION,
        **{name: getattr(f, name) / BILLION for name in classes},
        "parameters": f.parameters / MILLION,
        "activations": (f.read + f.written) / MILLION,
        "convolution": f.convolutions - f.depthwise_convolutions,
        "depthwise_convolution": f.depthwise_convolutions,
        "operator": f.matmuls + f.elementwise + f.activations + f.moves,
    }


def predict(features: Features, costs: Mapping[str, Figure]) -> Predicted:
    """The latency of one graph. `costs`: figures by name as in COSTS, those left out are free; SPREAD bounds it."""
    amount = amounts(features)
    median_ms = sum(amount[name] * figure.value for name, figure in costs.items() if name != SPREAD)
    spread = costs.get(SPREAD)
    low, high = (1.0, 1.0) if spread is None else (spread.low or 1.0, spread.high or 1.0)
    return Predicted(median_ms, median_ms * low, median_ms * high)
