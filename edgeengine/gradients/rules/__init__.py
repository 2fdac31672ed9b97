"""The gradient rules: one table, filled by a module per family of operators.

To add one, write a function `rule("Op")` in the module of its family; see `table.py` for what it gets and returns.
"""

from edgeengine.gradients.rules import (
    activations,
    conv,
    elementwise,
    indexing,
    normalization,
    pools,
    products,
    quantization,
    reductions,
    resizing,
    shapes,
)
from edgeengine.gradients.rules.table import RULES, Node, Rule

# Outputs that do not change, or change in steps, as the inputs move a little: no gradient passes.
CONSTANT_ALMOST_EVERYWHERE = frozenset(
    {
        "Shape", "Size", "ArgMax", "ArgMin", "Floor", "Ceil", "Round", "Sign", "Equal", "Greater", "GreaterOrEqual", "Less",
        "LessOrEqual", "Not", "And", "Or", "Xor", "IsNaN", "IsInf", "NonZero", "OneHot", "EyeLike", "ConstantOfShape", "Hardmax",
        "Range", "RandomNormalLike", "RandomUniformLike", "BitShift",
    }
)  # fmt: skip

__all__ = [
    "CONSTANT_ALMOST_EVERYWHERE",
    "RULES",
    "Node",
    "Rule",
    "activations",
    "conv",
    "elementwise",
    "indexing",
    "normalization",
    "pools",
    "products",
    "quantization",
    "reductions",
    "resizing",
    "shapes",
]
