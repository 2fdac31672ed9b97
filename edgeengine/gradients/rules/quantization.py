"""Straight-through gradients: quantize and dequantize together count as the identity within the range of the integers.

Source: Bengio, Léonard, Courville, "Estimating or Propagating Gradients Through Stochastic Neurons", 2013.
"""

from __future__ import annotations

import numpy as np

from edgeengine.gradients.rules.table import Grads, Node, rule


@rule("DequantizeLinear")
def _(n: Node) -> Grads:
    """The integers' gradient is kept in real units: the quantizer that made them takes it as it is."""
    return [n.dy, *[None] * (len(n.x) - 1)]


@rule("QuantizeLinear")
def _(n: Node) -> Grads:
    """0 where the integer is the least or the greatest: there the input may lie outside the range."""
    limits, real = np.iinfo(n.output().dtype), n.output().cast(n.dy.dtype)
    return [n.dy.mask((real > float(limits.min)) & (real < float(limits.max))), *[None] * (len(n.x) - 1)]
