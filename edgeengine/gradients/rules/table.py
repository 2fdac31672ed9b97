"""The table of gradient rules, and a forward node as a rule sees it.

A rule takes a node whose outputs have gradients and returns one gradient per input, None where there is none; it may
compute more than is wanted, since what nothing reads is dropped afterwards. A rule may have a `forward`: it emits the
node's forward pass itself and saves what the backward pass uses.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from onnx import helper

from edgeengine.errors import NotSupported, UserError
from edgeengine.gradients.tape import Tape, Tensor


@dataclass
class Node:
    """A forward node: `proto`, which a rule may change, was `source`. `x`, `y` and `dys` are its inputs, its outputs and their
    gradients (None: absent, or no gradient).

    `wants` says which inputs need a gradient; `values` the inputs whose value is known before any run; `forms` the chosen
    formulations (see `choose`); `made_by` the operator that makes each input ("" for inputs of the graph). `saved` is what
    the forward pass leaves to the backward pass, `choices` the formulations that the rule could choose from, by choice.
    """

    proto: onnx.NodeProto
    tape: Tape
    x: tuple[Tensor | None, ...]
    y: tuple[Tensor | None, ...]
    wants: tuple[bool, ...]
    values: tuple[np.ndarray | None, ...]
    made_by: tuple[str, ...]
    forms: Mapping[str, str]
    dys: tuple[Tensor | None, ...] = ()
    saved: dict[str, Tensor] = field(default_factory=dict)
    choices: dict[str, tuple[str, ...]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.source = onnx.NodeProto()
        self.source.CopyFrom(self.proto)
        self._attributes = {a.name: helper.get_attribute_value(a) for a in self.proto.attribute}

    @property
    def op(self) -> str:
        return self.proto.op_type

    @property
    def dy(self) -> Tensor:
        """The gradient of the first output."""
        return self.of(self.dys, 0)

    def input(self, index: int) -> Tensor:
        return self.of(self.x, index)

    def output(self, index: int = 0) -> Tensor:
        return self.of(self.y, index)

    def of(self, tensors: Sequence[Tensor | None], index: int) -> Tensor:
        tensor = tensors[index] if index < len(tensors) else None
        if tensor is None:
            raise self.refuse(f"without tensor {index}")
        return tensor

    def has(self, index: int) -> bool:
        return index < len(self.x) and self.x[index] is not None

    def attr(self, name: str, default: Any = None) -> Any:
        value = self._attributes.get(name, default)
        return value.decode() if isinstance(value, bytes) else value

    def number(self, name: str, default: float) -> float:
        return float(self.attr(name, default))

    def value(self, index: int) -> np.ndarray | None:
        """What input `index` holds in every run, None where that is not known."""
        return self.values[index] if index < len(self.values) else None

    def constant(self, index: int, what: str) -> np.ndarray:
        value = self.value(index)
        if value is None:
            raise self.refuse(f"whose {what} are not constant")
        return value

    def ints(self, index: int, what: str) -> list[int]:
        return [int(v) for v in self.constant(index, what).reshape(-1)]

    def sizes(self, tensor: Tensor, axes: Sequence[int]) -> list[int]:
        """Sizes that a rule must know before any run."""
        dims = [tensor.shape[a] for a in axes]
        if None in dims:
            raise UserError(f"node {self.proto.name!r} ({self.op}): size of {tensor.name!r} varies; fix it with --shape")
        return [d for d in dims if d is not None]

    def emit_forward(self, y: Tensor) -> None:
        """`y` is the node's first output."""
        name = self.proto.output[0]
        self.tape.nodes.append(helper.make_node("Identity", [y.name], [name], name=f"{name}/named"))

    def choose(self, choice: str, formulations: Sequence[str], default: str) -> str:
        """One of several equal formulations: what `forms` has for this node (`CHOICE@OUTPUT`) or for all, where it applies."""
        self.choices[choice] = tuple(formulations)
        wanted = (self.forms.get(f"{choice}@{self.proto.output[0]}"), self.forms.get(choice))
        return next((w for w in wanted if w is not None and w in formulations), default)

    def refuse(self, why: str) -> NotSupported:
        what = f"gradient rule ({why})"
        return NotSupported(self.op, self.proto.domain, self.tape.opset, self.proto.name or self.proto.output[0], what)


Grads = Sequence[Tensor | None]
Backward = Callable[[Node], Grads]
Forward = Callable[[Node], None]


@dataclass(frozen=True)
class Rule:
    """`forward` emits the node in place of a copy of it; None: the node is copied as it is."""

    backward: Backward
    forward: Forward | None = None


RULES: dict[str, Rule] = {}


def rule(*ops: str, forward: Forward | None = None) -> Callable[[Backward], Backward]:
    """Enter a function as the gradient rule of `ops`."""

    def enter(backward: Backward) -> Backward:
        for op in ops:
            if op in RULES:
                raise KeyError(f"{op} has a rule already")
            RULES[op] = Rule(backward, forward)
        return backward

    return enter
