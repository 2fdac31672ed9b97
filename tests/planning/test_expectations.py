"""What a subgraph is expected to take where some of it falls back: its own work less what is left, and that on the CPU."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from edgeengine.graph.fallback import Island
from edgeengine.planning.expectations import CALL_NS, Expectations
from edgeengine.profiling.described import Expected
from edgeengine.spec.device import DeviceProfile, Figure, ProcessorProfile, Speed
from edgeengine.spec.features import Features

MS = 1e6


def figures(**costs: float) -> Speed:
    made = {name: Figure(value, "ms", "made up", "guessed") for name, value in costs.items()}
    line = {"overhead": Figure(1.0, "ms", "made up", "guessed"), "rate": Figure(1.0, "GMAC/s", "made up", "guessed")}
    return Speed("none", figures=made, **line)


CPU = ProcessorProfile("cpu", "cpu", ("cpu",), "cores", speed={"float": figures(call=5.0, mac=10.0, operator=2.0)})
NPU = ProcessorProfile("npu", "npu", ("npu",), "an NPU", runs="qnn", speed={"float": figures(call=0.5, mac=1.0, operator=0.1)})
BOARD = DeviceProfile(description="made up", chip="none", name="acme/board", processor=(CPU, NPU))
WHOLE = Features(fc=3 * 10**9, matmuls=3, activations=4)
BUNDLE: Any = SimpleNamespace(manifest=SimpleNamespace(whole=SimpleNamespace(op_counts={})))
SUBGRAPH: Any = SimpleNamespace(macs=WHOLE.macs, features=WHOLE, unknown_ops=())


def expected(*left: Features) -> Expected:
    islands = [Island({"Celu": (f"n{i}",)}, features, 0, 0) for i, features in enumerate(left)]
    found = Expectations(BOARD, lambda *_: islands)(BUNDLE, SUBGRAPH, NPU)
    assert isinstance(found, Expected)
    return found


def test_what_falls_back_costs_what_it_takes_on_the_cpu() -> None:
    """0.5 ms a call, 1 ms per GMAC and 0.1 ms for each of 7 operators; on the CPU 10 ms per GMAC and 2 ms an operator."""
    assert expected().median_ns == pytest.approx((0.5 + 3 + 0.7) * MS + CALL_NS)
    no_macs = expected(Features(activations=2))
    assert no_macs.median_ns == pytest.approx((0.5 + 3 + 0.5 + 2 * 2) * MS + CALL_NS) and no_macs.copies == 2
    product = expected(Features(activations=2), Features(fc=10**9, matmuls=1))
    assert product.median_ns == pytest.approx((0.5 + 2 + 0.4 + 10 + 3 * 2) * MS + CALL_NS)
    assert product.copies == 4 and product.left == {"Celu": ("n0", "n1")}
