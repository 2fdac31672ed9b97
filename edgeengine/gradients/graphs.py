"""The training graphs of a model: what was asked for, put together from the parts of this folder."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

import onnx
from onnx import helper

from edgeengine.errors import UserError, near
from edgeengine.gradients import lora
from edgeengine.gradients.differentiate import Backward, differentiate, pruned
from edgeengine.gradients.formulations import Chooser
from edgeengine.gradients.head import Head, find_head
from edgeengine.gradients.looking import Look, Sizes, look
from edgeengine.gradients.losses import Loss, LossOptions, find_loss
from edgeengine.gradients.optimizers import find_optimizer, gradient_of, next_of, optimizer_graph
from edgeengine.gradients.selection import Parameter, parameters_of, select
from edgeengine.gradients.tape import Tape, Tensor
from edgeengine.gradients.working_copy import expanded, opset_of, verify_equal, working_copy
from edgeengine.graph.dtypes import TO_ONNX

LABEL = "label"


@dataclass(frozen=True)
class Request:
    """What to train and how; see `selection`, `losses` and `optimizers` for the words.

    `output` is the model's output the loss is taken on, its only one by default. `update_statistics` puts batch
    normalizations into training form, frozen otherwise. `forms` chooses formulations of gradient rules, `chooser` measures
    which to choose where `forms` is silent.
    """

    train: str = "all"
    loss: str = "cross_entropy"
    optimizer: str = "mixclip"
    output: str | None = None
    options: LossOptions = field(default_factory=LossOptions)
    weight_decay: float = 0.0
    clip_norm: float | None = None
    hyper: Mapping[str, float] = field(default_factory=dict)
    update_statistics: bool = False
    forms: Mapping[str, str] = field(default_factory=dict)
    chooser: Chooser | None = None


@dataclass(frozen=True)
class TrainingGraphs:
    """`parameters` maps what trains to its shape, `start` those of them that are not the model's own to their values.

    `statistics` are the running statistics that a step updates; `decays` the parameters that weight decay belongs to.
    `head` is the last layer where it is linear, `features` the model up to it.
    """

    gradient: onnx.ModelProto
    evaluation: onnx.ModelProto
    optimizer: onnx.ModelProto
    adapters: list[lora.Adapter]
    parameters: dict[str, tuple[int, ...]]
    start: dict[str, onnx.TensorProto]
    statistics: dict[str, tuple[int, ...]]
    decays: tuple[str, ...]
    label: str
    label_dims: tuple[int | None, ...]
    label_dtype: str
    classes: int
    loss_output: str
    prediction: str
    forms: dict[str, str]
    path: dict[str, int]
    frozen: int
    notes: tuple[str, ...]
    head: Head | None = None
    features: onnx.ModelProto | None = None


def training_graphs(source: onnx.ModelProto, sizes: Sizes, request: Request, what: str) -> TrainingGraphs:
    """Make the training graphs of `source`, an inference model with its weights inside.

    `sizes` are input shapes that it runs with. Raises UserError and NotSupported for what cannot train, naming the node.
    """
    loss, optimizer = find_loss(request.loss), find_optimizer(request.optimizer)
    own = {t.name for t in source.graph.initializer}
    copy = working_copy(source, what)
    verify_equal(source, copy, sizes, what)
    opset = opset_of(copy)
    held = {t.name: t for t in copy.graph.initializer if t.name in own}
    candidates = parameters_of(copy.graph, held)
    selection = select(candidates, request.train, what)
    output = _output(source.graph, request.output, what)
    prediction, undone = _undone(copy.graph, output, loss)
    adapters = lora.insert(copy, selection.lora, selection.alpha, opset) if selection.lora else []
    trained = [*selection.direct, *(n for a in adapters for n in (a.a, a.b))]
    seen = expanded(copy, sizes, trained)
    head = None if adapters else find_head(copy.graph, prediction, held)
    features = _model(copy, seen, copy.graph.node, [], [head.features], {}) if head else None
    total, label, sizes = _append_loss(copy, seen, prediction, loss, request.options, opset, sizes)
    seen = look(copy, sizes)
    if request.update_statistics:
        _put_into_training_form(copy.graph)
    forms = dict(request.forms)
    backward = differentiate(copy.graph, opset, seen, total, trained, forms)
    if request.chooser is not None and backward.choices:
        constants = {t.name: t for t in copy.graph.initializer}
        forms = request.chooser.forms(backward, seen, constants, opset) | forms
        backward = differentiate(copy.graph, opset, seen, total, trained, forms)
    reached = {p: _static(seen, p) for p in trained if p in backward.gradients}
    notes = [*undone, *_unreached(trained, reached, request, what), *_tied(candidates, reached)]
    statistics = {s: _static(seen, s) for s in backward.statistics}
    inputs = [*reached, *statistics]
    decays = tuple(p for p in reached if p not in candidates or candidates[p].matrix)
    return TrainingGraphs(
        gradient=_gradient_model(copy, seen, backward, inputs, total),
        evaluation=_model(copy, seen, copy.graph.node, inputs, [total, prediction], {}),
        optimizer=optimizer_graph(optimizer, reached, decays, opset, request.weight_decay, request.clip_norm, request.hyper),
        adapters=adapters,
        parameters=reached,
        start={t.name: t for t in copy.graph.initializer if t.name in reached and t.name not in own},
        statistics=statistics,
        decays=decays,
        label=label,
        label_dims=seen.dims[label],
        label_dtype=loss.target,
        classes=(seen.dims[prediction][1] or 0) if loss.classes else 0,
        loss_output=total,
        prediction=prediction,
        forms=forms,
        path=dict(sorted(backward.path.items(), key=lambda item: (-item[1], item[0]))),
        frozen=sum(1 for p in candidates if p not in reached),
        notes=tuple(notes),
        head=head,
        features=features,
    )


def _output(graph: onnx.GraphProto, wanted: str | None, what: str) -> str:
    names: list[str] = [o.name for o in graph.output]
    if wanted is None:
        if len(names) > 1:
            raise UserError(f"{what}: has {len(names)} outputs ({', '.join(names[:8])}); say with --output which one trains")
        return names[0]
    if wanted not in names:
        raise UserError(f"{what}: has no output {wanted!r}; {near(wanted, names)}")
    return wanted


def _undone(graph: onnx.GraphProto, output: str, loss: Loss) -> tuple[str, list[str]]:
    """The tensor the loss is taken on: the output, or what its final softmax or sigmoid reads; and what to say of it."""
    makers = {o: n for n in graph.node for o in n.output}
    tensor = output
    while tensor in makers and makers[tensor].op_type == "Identity":
        tensor = makers[tensor].input[0]
    node = makers.get(tensor)
    if node is None:
        return output, []
    said = "the loss is taken on {!r}, before the final {}, which it contains"
    if node.op_type in loss.inverse:
        return node.input[0], [said.format(node.input[0], node.op_type)]
    exponents = _spelt_softmax(makers, node)
    if exponents is not None and "Softmax" in loss.inverse:
        return exponents, [said.format(exponents, "softmax (Exp, ReduceSum, Div)")]
    return output, []


def _spelt_softmax(makers: Mapping[str, onnx.NodeProto], node: onnx.NodeProto) -> str | None:
    """What Exp reads in e / sum(e) with e = Exp(x), the sum perhaps reshaped; None for other nodes."""
    maker = makers.get(node.input[0])
    if node.op_type != "Div" or maker is None or maker.op_type != "Exp":
        return None
    total = node.input[1]
    while total in makers and makers[total].op_type in ("Reshape", "Expand", "Unsqueeze", "Identity"):
        total = makers[total].input[0]
    sums = total in makers and makers[total].op_type == "ReduceSum" and makers[total].input[0] == node.input[0]
    return maker.input[0] if sums else None


def _append_loss(
    proto: onnx.ModelProto, seen: Look, prediction: str, loss: Loss, options: LossOptions, opset: int, sizes: Sizes
) -> tuple[str, str, Sizes]:
    """Add the label as an input and the loss's nodes, in place: the loss's name, the label's, and sizes with the label."""
    graph = proto.graph
    taken = {i.name for i in graph.input} | {t.name for t in graph.initializer} | {o for n in graph.node for o in n.output}
    label = LABEL if LABEL not in taken else f"training/{LABEL}"
    once, again = (loss.target_shape(s) for s in seen.shapes[prediction])
    tape = Tape("loss/", opset)
    sizes = sizes.having(label, once, again)
    x = Tensor(tape, prediction, seen.dtypes[prediction], seen.dims[prediction])
    if x.dtype != "float32":
        raise UserError(f"output {prediction!r} is {x.dtype}; a loss needs float32, so train the float model")
    total = loss.emit(x, Tensor(tape, label, loss.target, sizes.dims(label)), options)
    graph.node.extend(tape.nodes)
    graph.initializer.extend(tape.constants.values())
    graph.input.append(helper.make_tensor_value_info(label, TO_ONNX[loss.target], list(sizes.dims(label))))
    return total.name, label, sizes


def _put_into_training_form(graph: onnx.GraphProto) -> None:
    for node in graph.node:
        if node.op_type == "BatchNormalization":
            kept = [a for a in node.attribute if a.name != "training_mode"]
            del node.attribute[:]
            node.attribute.extend([*kept, helper.make_attribute("training_mode", 1)])


def _unreached(trained: Iterable[str], reached: Collection[str], request: Request, what: str) -> list[str]:
    """Parameters that the loss does not depend on: said where a role chose them, refused where nothing is left."""
    left = [p for p in trained if p not in reached]
    if not reached:
        raise UserError(f"{what}: the loss depends on none of what {request.train!r} chooses ({', '.join(left[:4])})")
    return [f"{len(left)} chosen tensors do not act on the loss and stay as they are: {', '.join(left[:8])}"] if left else []


def _tied(candidates: Mapping[str, Parameter], reached: Collection[str]) -> list[str]:
    """Exporters make one tensor of equal ones, and those train as one; the same is so where weights are tied on purpose."""
    tied = [p.name for p in candidates.values() if p.name in reached and len(p.readers) > 1]
    return [f"{len(tied)} tensors are read by several nodes and train as one: {', '.join(tied[:8])}"] if tied else []


def _static(seen: Look, name: str) -> tuple[int, ...]:
    return tuple(d for d in seen.dims[name] if d is not None)


def _gradient_model(copy: onnx.ModelProto, seen: Look, backward: Backward, inputs: list[str], total: str) -> onnx.ModelProto:
    nodes = list(backward.tape.nodes)
    outputs = [total]
    named = [(g.name, gradient_of(p)) for p, g in backward.gradients.items()]
    named += [(t.name, next_of(s)) for s, t in backward.statistics.items()]
    for tensor, name in named:
        nodes.append(helper.make_node("Identity", [tensor], [name], name=f"{name}/named"))
        outputs.append(name)
    shapes = {gradient_of(p): seen.dims[p] for p in backward.gradients} | {next_of(s): seen.dims[s] for s in backward.statistics}
    return _model(copy, seen, nodes, inputs, outputs, backward.tape.constants, shapes)


def _model(
    copy: onnx.ModelProto,
    seen: Look,
    nodes: Iterable[onnx.NodeProto],
    inputs: list[str],
    outputs: list[str],
    constants: Mapping[str, onnx.TensorProto],
    shapes: Mapping[str, tuple[int | None, ...]] | None = None,
) -> onnx.ModelProto:
    """A model of the nodes that `outputs` need; `inputs` (parameters) come after the working copy's own inputs."""
    kept = pruned(nodes, outputs)
    read = {t for n in kept for t in n.input} | set(outputs)
    held = [t for t in (*copy.graph.initializer, *constants.values()) if t.name in read and t.name not in inputs]
    dims = {o: (shapes or {}).get(o, seen.dims.get(o, ())) for o in outputs}
    graph = helper.make_graph(
        kept,
        copy.graph.name or "training",
        [_info(i.name, seen, seen.dims[i.name]) for i in copy.graph.input if i.name in read]
        + [_info(p, seen, seen.dims[p]) for p in inputs if p in read],
        [_info(o, seen, dims[o]) for o in outputs],
        held,
    )
    return helper.make_model(graph, opset_imports=copy.opset_import, ir_version=copy.ir_version)


def _info(name: str, seen: Look, dims: tuple[int | None, ...]) -> onnx.ValueInfoProto:
    """A varying dimension is the batch: one name for all."""
    return helper.make_tensor_value_info(
        name, TO_ONNX[seen.dtypes.get(name, "float32")], ["batch" if d is None else d for d in dims]
    )
