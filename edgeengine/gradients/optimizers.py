"""Optimizers: a table of rows, each emitting one parameter's update on a tape; and the graph that updates all of them.

The graph is elementwise, in float32, for the CPU. Its inputs are the master weights, their gradients, the state and two
scalars: `lr` (a schedule is fed through it) and `step` (1 for the first). Nothing is updated in place: results are new
tensors.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import onnx
from onnx import TensorProto, helper

from edgeengine.errors import UserError
from edgeengine.gradients.tape import Tape, Tensor

Updated = tuple[Tensor, dict[str, Tensor]]
LR, STEP, NORM = "lr", "step", "gradient_norm"


@dataclass(frozen=True)
class Update:
    """One parameter's update: `p` and its gradient `g`, both of the same shape, the state `slots`, and the scalars.

    `decay` is the weight decay of this parameter: 0 where none belongs.
    """

    p: Tensor
    g: Tensor
    slots: Mapping[str, Tensor]
    lr: Tensor
    step: Tensor
    hyper: Mapping[str, float]
    decay: float


@dataclass(frozen=True)
class Optimizer:
    """`slots` are state tensors like the parameter, zero at the start; `hyper` its constants and `lr` the rate, as is usual."""

    update: Callable[[Update], Updated]
    slots: tuple[str, ...]
    hyper: Mapping[str, float]
    lr: float


def _decayed(u: Update) -> Tensor:
    """The gradient of the loss plus decay/2 |p|^2."""
    return u.g + u.p * u.decay if u.decay else u.g


def _shrunk(u: Update) -> Tensor:
    """Decay apart from the gradient: p (1 - lr decay)."""
    return u.p * (1 - u.lr * u.decay) if u.decay else u.p


def _sgd(u: Update) -> Updated:
    return u.p - u.lr * _decayed(u), {}


def _momentum(u: Update) -> Updated:
    """m = mu m + g; p -= lr m, or lr (g + mu m) with Nesterov's look ahead (Sutskever et al., 2013; torch's form)."""
    mu, g = u.hyper["momentum"], _decayed(u)
    m = u.slots["m"] * mu + g
    return u.p - u.lr * (g + m * mu if u.hyper["nesterov"] else m), {"m": m}


def _moments(u: Update, g: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
    """Adam's direction m^ / (sqrt(v^) + eps), with both moments corrected for their start at 0."""
    b1, b2 = u.hyper["beta1"], u.hyper["beta2"]
    m = u.slots["m"] * b1 + g * (1 - b1)
    v = u.slots["v"] * b2 + g * g * (1 - b2)
    first, second = (1 - u.p.tape.binary("Pow", b, u.step) for b in (b1, b2))
    direction = (m / first) / ((v / second).op("Sqrt") + u.hyper["eps"])
    return direction, {"m": m, "v": v}


def _adam(u: Update) -> Updated:
    """Kingma, Ba, 2015."""
    direction, state = _moments(u, _decayed(u))
    return u.p - u.lr * direction, state


def _adamw(u: Update) -> Updated:
    """Loshchilov, Hutter, 2019."""
    direction, state = _moments(u, u.g)
    return _shrunk(u) - u.lr * direction, state


def _lion(u: Update) -> Updated:
    """p -= lr sign(b1 m + (1 - b1) g) (Chen et al., "Symbolic Discovery of Optimization Algorithms", 2023)."""
    b1, b2 = u.hyper["beta1"], u.hyper["beta2"]
    direction = (u.slots["m"] * b1 + u.g * (1 - b1)).op("Sign")
    return _shrunk(u) - u.lr * direction, {"m": u.slots["m"] * b2 + u.g * (1 - b2)}


def _mixclip(u: Update) -> Updated:
    """Mixed clipping: a weighted sum of momentum and gradient, the step along each softly bounded by gamma.

    x -= lr [nu m / (1 + lr |m| / gamma) + (1 - nu) g / (1 + lr |g| / gamma)]
    (Zhang, Jin, Fang, Wang, "Improved Analysis of Clipping Algorithms for Non-convex Optimization", 2020; soft form.)
    """
    beta, nu, gamma = u.hyper["beta"], u.hyper["nu"], u.hyper["gamma"]
    g = _decayed(u)
    m = u.slots["m"] * beta + g * (1 - beta)

    def bounded(t: Tensor) -> Tensor:
        return t / (u.lr * _norm([t]) * (1 / gamma) + 1)

    return u.p - u.lr * (bounded(m) * nu + bounded(g) * (1 - nu)), {"m": m}


OPTIMIZERS: dict[str, Optimizer] = {
    "sgd": Optimizer(_sgd, (), {}, 0.05),
    "momentum": Optimizer(_momentum, ("m",), {"momentum": 0.9, "nesterov": 0.0}, 0.01),
    "nesterov": Optimizer(_momentum, ("m",), {"momentum": 0.9, "nesterov": 1.0}, 0.01),
    "adam": Optimizer(_adam, ("m", "v"), {"beta1": 0.9, "beta2": 0.999, "eps": 1e-8}, 1e-3),
    "adamw": Optimizer(_adamw, ("m", "v"), {"beta1": 0.9, "beta2": 0.999, "eps": 1e-8}, 1e-3),
    "lion": Optimizer(_lion, ("m",), {"beta1": 0.9, "beta2": 0.99}, 1e-4),
    "mixclip": Optimizer(_mixclip, ("m",), {"beta": 0.999, "nu": 0.7, "gamma": 1.0}, 0.1),
}


def find_optimizer(name: str) -> Optimizer:
    """Raises UserError for a name that is not in the table."""
    if name not in OPTIMIZERS:
        raise UserError(f"no optimizer {name!r}; there are {', '.join(OPTIMIZERS)}")
    return OPTIMIZERS[name]


def gradient_of(parameter: str) -> str:
    """The gradient's name, in both graphs."""
    return f"{parameter}/gradient"


def slot_of(parameter: str, slot: str) -> str:
    return f"{parameter}/{slot}"


def next_of(tensor: str) -> str:
    """The updated tensor's name: of a parameter, or of a state tensor."""
    return f"{tensor}/next"


def optimizer_graph(
    optimizer: Optimizer,
    parameters: Mapping[str, tuple[int, ...]],
    decays: Sequence[str],
    opset: int,
    weight_decay: float = 0.0,
    clip_norm: float | None = None,
    hyper: Mapping[str, float] | None = None,
) -> onnx.ModelProto:
    """The graph that makes one step of all `parameters` (name -> shape), by the names above.

    `decays` are the parameters that weight decay belongs to. `clip_norm` bounds the norm of all gradients together; that
    norm, before it is bounded, is the output `gradient_norm`. Raises UserError for constants the optimizer does not have.
    """
    unknown = (hyper or {}).keys() - optimizer.hyper.keys()
    if unknown:
        raise UserError(f"the optimizer has no constant {sorted(unknown)[0]!r}; it has {', '.join(optimizer.hyper) or 'none'}")
    tape = Tape("update/", opset)
    lr, step = (Tensor(tape, name, "float32", ()) for name in (LR, STEP))
    inputs: list[tuple[str, tuple[int, ...]]] = [(LR, ()), (STEP, ())]
    outputs: list[tuple[str, tuple[int, ...]]] = []
    gradients = {p: Tensor(tape, gradient_of(p), "float32", s) for p, s in parameters.items()}
    norm = _norm(list(gradients.values()))
    tape.nodes.append(helper.make_node("Identity", [norm.name], [NORM], name="norm/named"))
    factor = tape.binary("Min", 1.0, clip_norm / (norm + 1e-6)) if clip_norm else None
    for p, shape in parameters.items():
        g = gradients[p] * factor if factor is not None else gradients[p]
        slots = {s: Tensor(tape, slot_of(p, s), "float32", shape) for s in optimizer.slots}
        decay = weight_decay if p in decays else 0.0
        constants = {**optimizer.hyper, **(hyper or {})}
        new, state = optimizer.update(Update(Tensor(tape, p, "float32", shape), g, slots, lr, step, constants, decay))
        inputs += [(p, shape), (gradient_of(p), shape), *((slot_of(p, s), shape) for s in optimizer.slots)]
        for name, tensor in [(p, new), *((slot_of(p, s), t) for s, t in state.items())]:
            outputs.append((next_of(name), shape))
            tape.nodes.append(helper.make_node("Identity", [tensor.name], [next_of(name)], name=f"{next_of(name)}/named"))
    outputs.append((NORM, ()))
    graph = helper.make_graph(
        tape.nodes,
        "optimizer",
        [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in inputs],
        [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in outputs],
        list(tape.constants.values()),
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)


def step_graph(gradient: onnx.ModelProto, optimizer: onnx.ModelProto) -> onnx.ModelProto:
    """Both graphs as one: gradients stay inside, and each is used while it is still in the cache.

    Nothing is updated in place here either. Its outputs are the gradient graph's without the gradients, then the optimizer's.
    """
    made = {o.name for o in gradient.graph.output}
    used = {i.name for i in optimizer.graph.input}
    known = {i.name for i in gradient.graph.input}
    graph = helper.make_graph(
        [*gradient.graph.node, *optimizer.graph.node],
        "step",
        [*gradient.graph.input, *(i for i in optimizer.graph.input if i.name not in made | known)],
        [*(o for o in gradient.graph.output if o.name not in used), *optimizer.graph.output],
        [*gradient.graph.initializer, *optimizer.graph.initializer],
    )
    return helper.make_model(graph, opset_imports=gradient.opset_import, ir_version=gradient.ir_version)


def _norm(tensors: Sequence[Tensor]) -> Tensor:
    """The Euclidean norm of all elements together."""
    squares = [t.tape.emit("ReduceSumSquare", t, shape=(), keepdims=0) for t in tensors]
    return (squares[0] if len(squares) == 1 else squares[0].tape.emit("Sum", *squares, shape=())).op("Sqrt")
