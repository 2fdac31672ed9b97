"""Build a bundle with training graphs: the inference subgraphs as ever, the training graphs beside them.

All share weights/base.bin: what stays frozen is read from there by name, what trains starts there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec
import numpy as np
import onnx
from onnx import numpy_helper
from safetensors.numpy import save_file

from edgeengine.bundle import Bundle
from edgeengine.errors import UserError
from edgeengine.gradients import lora
from edgeengine.gradients.graphs import Request, TrainingGraphs, training_graphs
from edgeengine.gradients.looking import Sizes
from edgeengine.gradients.losses import find_loss
from edgeengine.gradients.micro_steps import Pace, gradient_parts, measured_alone
from edgeengine.gradients.optimizers import find_optimizer, gradient_of, next_of, step_graph
from edgeengine.gradients.working_copy import with_weights
from edgeengine.graph.build import Progress, build_bundle
from edgeengine.graph.shapes import Tensors
from edgeengine.graph.study import Study
from edgeengine.graph.tensors import external_slice, is_external
from edgeengine.graph.weights import Weights
from edgeengine.spec.tensor import TensorSpec
from edgeengine.spec.training import HeadSpec, Statistic, TrainedTensor, TrainingSpec

GRADIENT, EVALUATION, OPTIMIZER, STEP, MERGE, FEATURES = (
    "train_gradient.onnx",
    "train_evaluation.onnx",
    "train_optimizer.onnx",
    "train_step.onnx",
    "train_merge.onnx",
    "train_features.onnx",
)
ADAPTERS = "weights/adapters.safetensors"


def build_trainable(
    model_path: str | Path,
    out: str | Path,
    request: Request,
    *,
    parts: int | None = None,
    shapes: Mapping[str, Sequence[int]] | None = None,
    inputs: Mapping[str, np.ndarray] | None = None,
    fix: Mapping[str, np.ndarray] | None = None,
    pace: Pace | None = None,
    preprocessing: Mapping[str, object] | None = None,
    progress: Progress | None = None,
) -> Bundle:
    """Write the bundle `out` of the model at `model_path` with the training graphs that `request` describes.

    With `pace` they are measured, and the gradient graph is cut where a run takes longer than that allows. The other
    arguments are those of `build_bundle`. Raises what it and `training_graphs` raise; then nothing is written.
    """
    find_loss(request.loss)
    find_optimizer(request.optimizer)

    def add(seen: Study, weights: Weights, folder: Path) -> TrainingSpec:
        if progress is not None:
            progress("differentiating", 0.25)
        spec = write_training(seen, weights, folder, request)
        if pace is None:
            return spec
        if progress is not None:
            progress("measuring a training step", 0.3)
        batch = spec.label.shape[0] if spec.label.shape else None
        parts = gradient_parts(folder, GRADIENT, pace, batch if isinstance(batch, int) else None)
        return msgspec.structs.replace(spec, parts=parts, optimizer_ns=measured_alone(folder, OPTIMIZER, pace.measure))

    return build_bundle(
        model_path, out, parts=parts, shapes=shapes, inputs=inputs, fix=fix, preprocessing=preprocessing, progress=progress,
        addition=add,
    )  # fmt: skip


def write_training(seen: Study, weights: Weights, folder: Path, request: Request) -> TrainingSpec:
    """Write the training graphs of the model `seen` into `folder`, whose base.bin holds `weights`."""
    model = seen.flow.model
    what = str(model.path)
    source = with_weights(model)
    graphs = training_graphs(source, _sizes(seen.tensors), request, what)
    references = _references(source, weights)
    _refuse_inline(graphs, references, what)
    step = step_graph(graphs.gradient, graphs.optimizer)
    written = {GRADIENT: graphs.gradient, EVALUATION: graphs.evaluation, OPTIMIZER: graphs.optimizer, STEP: step}
    for name, proto in written.items():
        _write(folder / name, proto, source, references)
    if graphs.features is not None:
        _write(folder / FEATURES, graphs.features, source, references)
    if graphs.adapters:
        known = {**references, **graphs.start}
        _write(
            folder / MERGE, lora.merge_graph(graphs.adapters, known, graphs.optimizer.opset_import[0].version), source, references
        )
        save_file({n: numpy_helper.to_array(t) for n, t in graphs.start.items()}, folder / ADAPTERS)
    return _spec(graphs, references, request)


def _sizes(tensors: Tensors) -> Sizes:
    """Two batch sizes above 1, so that no size of the model is taken for a batch; the fixed sizes where no batch is free."""
    if tensors.batched is None:
        return Sizes.fixed(tensors.fixed, tensors.values)
    again = {
        name: tuple(b if a == b else 3 for a, b in zip(tensors.fixed[name], dims, strict=True))
        for name, dims in tensors.batched.items()
    }
    values = {n: v for n, v in tensors.values.items() if tensors.fixed[n] == tensors.batched[n]}
    return Sizes(tensors.batched, again, values)


def _references(source: onnx.ModelProto, weights: Weights) -> dict[str, onnx.TensorProto]:
    return {t.name: weights.initializers[t.name] for t in source.graph.initializer if t.name in weights.initializers}


def _refuse_inline(graphs: TrainingGraphs, references: Mapping[str, onnx.TensorProto], what: str) -> None:
    """A version overrides external initializers only."""
    for name in (*graphs.parameters, *graphs.statistics):
        if name in graphs.start:
            continue
        if name not in references:
            raise UserError(
                f"{what}: {name!r} is a copy that the exporter made of an equal tensor, so it cannot have a value of its own; "
                f"export the model after a training step, or without joining equal tensors"
            )
        if not is_external(references[name]):
            raise UserError(f"{what}: {name!r} is read as a shape, so no version can replace it; leave it out of --train")


def _write(path: Path, proto: onnx.ModelProto, source: onnx.ModelProto, references: Mapping[str, onnx.TensorProto]) -> None:
    """Write a graph; weights that are the model's own, unchanged, are read from base.bin."""
    original = {t.name: t for t in source.graph.initializer}
    held = []
    for tensor in proto.graph.initializer:
        reference = references.get(tensor.name)
        if reference is not None and (is_external(tensor) or _same(tensor, original[tensor.name])):
            held.append(reference)
        else:
            held.append(tensor)
    kept = [onnx.TensorProto.FromString(t.SerializeToString()) for t in held]
    del proto.graph.initializer[:]
    proto.graph.initializer.extend(kept)
    path.write_bytes(proto.SerializeToString(deterministic=True))


def _same(a: onnx.TensorProto, b: onnx.TensorProto) -> bool:
    one, other = numpy_helper.to_array(a), numpy_helper.to_array(b)
    return one.dtype == other.dtype and one.shape == other.shape and one.tobytes() == other.tobytes()


def _spec(graphs: TrainingGraphs, references: Mapping[str, onnx.TensorProto], request: Request) -> TrainingSpec:
    def offset(name: str) -> int:
        return -1 if name in graphs.start else external_slice(references[name])[1]

    optimizer = find_optimizer(request.optimizer)
    dims = tuple("batch" if d is None else d for d in graphs.label_dims)
    return TrainingSpec(
        gradient=GRADIENT,
        evaluation=EVALUATION,
        optimizer=OPTIMIZER,
        step=STEP,
        loss=request.loss,
        optimizer_name=request.optimizer,
        lr=find_optimizer(request.optimizer).lr,
        label=TensorSpec(graphs.label, graphs.label_dtype, dims),
        loss_output=graphs.loss_output,
        prediction=graphs.prediction,
        metric=find_loss(request.loss).metric,
        parameters=tuple(
            TrainedTensor(p, shape, offset(p), gradient_of(p), p in graphs.decays) for p, shape in graphs.parameters.items()
        ),
        slots=optimizer.slots,
        statistics=tuple(Statistic(s, shape, offset(s), next_of(s)) for s, shape in graphs.statistics.items()),
        merge=MERGE if graphs.adapters else "",
        merged=tuple(a.weight for a in graphs.adapters),
        adapters=ADAPTERS if graphs.adapters else "",
        classes=graphs.classes,
        ignore_index=request.options.ignore_index,
        class_weights=request.options.class_weights,
        hyper={**optimizer.hyper, **request.hyper, "weight_decay": request.weight_decay},
        forms=graphs.forms,
        path=graphs.path,
        frozen=graphs.frozen,
        notes=graphs.notes,
        head=_head(graphs, references),
    )


def _head(graphs: TrainingGraphs, references: Mapping[str, onnx.TensorProto]) -> HeadSpec | None:
    head = graphs.head
    if head is None:
        return None
    weight, bias = references[head.weight], references[head.bias]
    width, classes = reversed(weight.dims) if head.transposed else weight.dims
    return HeadSpec(
        FEATURES, head.features, head.weight, external_slice(weight)[1], head.bias, external_slice(bias)[1],
        tuple(bias.dims), head.transposed, width, classes,
    )  # fmt: skip
