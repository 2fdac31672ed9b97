"""LSTM, GRU and RNN in plain operators, one step after another: what a recurrent node is differentiated as.

The products with the inputs are taken for all steps at once; only those with the hidden state are per step. Sources of
the equations: the ONNX operator specification (LSTM, GRU, RNN). Shapes: X [T, B, I], W [D, gates * H, I], R [D, gates * H,
H], B [D, 2 * gates * H], Y [T, D, B, H], states [D, B, H] (layout 0), T known, B may vary.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from edgeengine.gradients.rules.table import Node
from edgeengine.gradients.tape import Tensor

State = tuple[Tensor, ...]
_GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}
_ACTIVATIONS = {"LSTM": ["Sigmoid", "Tanh", "Tanh"], "GRU": ["Sigmoid", "Tanh"], "RNN": ["Tanh"]}
_PLAIN = ("Sigmoid", "Tanh", "Relu", "Softplus", "Softsign")


@dataclass(frozen=True)
class _Cell:
    """One direction's weights, transposed for products from the right; `acts` are its activations by name."""

    size: int
    recurrent: Tensor
    bias: Tensor | None
    recurrent_bias: Tensor | None
    acts: list[str]
    linear_before_reset: bool


def unrolled(n: Node) -> dict[str, Tensor]:
    """Emit the node step by step; its output names -> what replaces them. Raises NotSupported for what is not covered."""
    _refuse_extras(n)
    x = n.input(0)
    if n.attr("layout", 0):
        x = x.transpose([1, 0, 2])
    (steps,) = n.sizes(x, [0])
    direction, size = n.attr("direction", "forward"), n.attr("hidden_size")
    backwards = {"forward": [False], "reverse": [True], "bidirectional": [False, True]}[direction]
    runs = [_run(n, x, steps, size, d, turned) for d, turned in enumerate(backwards)]
    stacked = [n.tape.concat([h.unsqueeze([0, 1]) for h in hs], axis=0) for hs, _ in runs]
    results: list[Tensor] = [n.tape.concat(stacked, axis=1)]
    for i in range(len(runs[0][1])):
        results.append(n.tape.concat([last[i].unsqueeze([0]) for _, last in runs], axis=0))
    if n.attr("layout", 0):
        results = [results[0].transpose([2, 0, 1, 3]), *(r.transpose([1, 0, 2]) for r in results[1:])]
    return {name: r for name, r in zip(n.proto.output, results, strict=False) if name}


def _refuse_extras(n: Node) -> None:
    extras = {"sequence_lens": n.has(4), "peepholes": n.has(7), "clip": n.attr("clip"), "input_forget": n.attr("input_forget")}
    for what, given in extras.items():
        if given:
            raise n.refuse(f"with {what}")


def _run(n: Node, x: Tensor, steps: int, size: int, d: int, turned: bool) -> tuple[list[Tensor], State]:
    """One direction: the hidden states in order of time, and the last state."""
    cell = _cell(n, d, size)
    w = n.input(1).slice(0, d, d + 1).squeeze([0]).transpose([1, 0])
    inputs = x @ w
    if cell.bias is not None:
        inputs = inputs + cell.bias
    first = [n.input(i).slice(0, d, d + 1).squeeze([0]) if n.has(i) else None for i in (5, 6)]
    if n.attr("layout", 0) and any(n.has(i) for i in (5, 6)):
        raise n.refuse("with initial states in batch-first layout")
    parts = n.tape.emit_many("Split", [inputs, n.tape.ints([1] * steps)], [x.dtype] * steps, axis=0)
    zero = _zero_state(n, x, size)
    state: State = tuple(s if s is not None else zero for s in first[: 2 if n.op == "LSTM" else 1])
    hidden: list[Tensor] = []
    for part in reversed(parts) if turned else parts:
        state = _STEPS[n.op](cell, part.squeeze([0]), state)
        hidden.append(state[0])
    return hidden[::-1] if turned else hidden, state


def _cell(n: Node, d: int, size: int) -> _Cell:
    gates = _GATES[n.op]
    given = n.attr("activations")
    names = [a.decode() if isinstance(a, bytes) else a for a in given or _ACTIVATIONS[n.op] * (d + 1)]
    acts = names[d * len(_ACTIVATIONS[n.op]) :][: len(_ACTIVATIONS[n.op])]
    if any(a not in _PLAIN for a in acts):
        raise n.refuse(f"with activations {', '.join(acts)}")
    bias = recurrent_bias = None
    linear = bool(n.attr("linear_before_reset", 0))
    if n.has(3):
        both = n.input(3).slice(0, d, d + 1).squeeze([0])
        bias, recurrent_bias = (both.slice(0, k * gates * size, (k + 1) * gates * size) for k in (0, 1))
        if not (n.op == "GRU" and linear):
            bias, recurrent_bias = bias + recurrent_bias, None
    r = n.input(2).slice(0, d, d + 1).squeeze([0]).transpose([1, 0])
    return _Cell(size, r, bias, recurrent_bias, acts, linear)


def _zero_state(n: Node, x: Tensor, size: int) -> Tensor:
    """[B, H] of zeros."""
    batch = n.tape.emit("Shape", x, dtype="int64", start=1, end=2)
    shape = n.tape.concat([batch, n.tape.ints([size])], axis=0)
    return n.tape.emit("Expand", n.tape.scalar(0.0, x.dtype), shape)


def _part(gates: Tensor, k: int, size: int) -> Tensor:
    return gates.slice(-1, k * size, (k + 1) * size)


def _lstm(cell: _Cell, inputs: Tensor, state: State) -> State:
    """Gates in ONNX's order: input, output, forget, candidate."""
    h, c = state
    gates = inputs + h @ cell.recurrent
    f, g, out = cell.acts
    i, o, keep = (_part(gates, k, cell.size).op(f) for k in (0, 1, 2))
    c = keep * c + i * _part(gates, 3, cell.size).op(g)
    return o * c.op(out), c


def _gru(cell: _Cell, inputs: Tensor, state: State) -> State:
    """Gates in ONNX's order: update, reset, candidate."""
    (h,) = state
    f, g = cell.acts
    both = 2 * cell.size
    if cell.linear_before_reset:
        product = h @ cell.recurrent
        if cell.recurrent_bias is not None:
            product = product + cell.recurrent_bias
        gates = (inputs.slice(-1, 0, both) + product.slice(-1, 0, both)).op(f)
        z, r = _part(gates, 0, cell.size), _part(gates, 1, cell.size)
        candidate = (_part(inputs, 2, cell.size) + r * _part(product, 2, cell.size)).op(g)
    else:
        gates = (inputs.slice(-1, 0, both) + h @ cell.recurrent.slice(1, 0, both)).op(f)
        z, r = _part(gates, 0, cell.size), _part(gates, 1, cell.size)
        candidate = (_part(inputs, 2, cell.size) + (r * h) @ cell.recurrent.slice(1, both)).op(g)
    return ((1 - z) * candidate + z * h,)


def _rnn(cell: _Cell, inputs: Tensor, state: State) -> State:
    return ((inputs + state[0] @ cell.recurrent).op(cell.acts[0]),)


_STEPS: dict[str, Callable[[_Cell, Tensor, State], State]] = {"LSTM": _lstm, "GRU": _gru, "RNN": _rnn}
