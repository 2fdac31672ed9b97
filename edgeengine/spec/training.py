"""What a bundle says about its training graphs: enough to train with ONNX Runtime and numpy alone."""

from __future__ import annotations

import msgspec

from edgeengine.spec.tensor import TensorSpec


class TrainedTensor(msgspec.Struct, frozen=True):
    """A float32 tensor that training changes: an input of the gradient, evaluation and optimizer graphs by its `name`.

    It starts as the bytes at `offset` of weights/base.bin, or, with offset -1, as the tensor of that name in
    weights/adapters.safetensors. `gradient` is the output that holds its gradient, `decays` whether weight decay applies.
    """

    name: str
    shape: tuple[int, ...]
    offset: int
    gradient: str
    decays: bool = True


class Statistic(msgspec.Struct, frozen=True):
    """A running statistic of a normalization: an input by its `name`; its new value is the gradient graph's output `next`."""

    name: str
    shape: tuple[int, ...]
    offset: int
    next: str


class HeadSpec(msgspec.Struct, frozen=True):
    """The last layer y = x W + b, where it is linear: what a closed-form solution replaces.

    The graph `features` takes the model's inputs and gives `tensor`, x, float32 [batch, width]. `weight` names W, [width,
    classes], or [classes, width] where `transposed`; `bias` names b. Both start in weights/base.bin at their offsets.
    """

    features: str
    tensor: str
    weight: str
    weight_offset: int
    bias: str
    bias_offset: int
    bias_shape: tuple[int, ...]
    transposed: bool
    width: int
    classes: int


class GradientPart(msgspec.Struct, frozen=True):
    """A run of the gradient graph, or of one part of it after those before: plain tensors pass between.

    `latency_ns` is the median as measured where the bundle was made, with `examples`: what it was cut by, no profile.
    """

    name: str
    file: str
    examples: int
    latency_ns: int


DER = "der"  # the loss whose label holds logits to keep as well, see gradients.losses


class TrainingSpec(msgspec.Struct, frozen=True):
    """The training graphs of a bundle and how their tensors belong together.

    `gradient` takes the model's inputs, `label`, the parameters and the statistics; it gives `loss_output` (a scalar), the
    gradients and the new statistics. `evaluation` takes the same and gives the loss and `prediction`. `optimizer` takes
    `lr`, `step`, the parameters P, their gradients and P/SLOT for every slot; it gives P/next, P/SLOT/next and
    `gradient_norm`. `step` is `gradient` and `optimizer` in one, its outputs those of both without the gradients. `merge`,
    where adapters train, takes them and gives MERGED/next for every tensor in `merged`: those are what a version holds in
    their place.

    `lr` is the optimizer's usual learning rate. `head` is there where the last layer can be solved for in closed form. `parts`
    are the runs of the gradient graph that were measured, bounded in time where it was cut: in order they give what
    `gradient` gives. `optimizer_ns` is the optimizer's time, 0 where it was not measured. `forms` are the formulations that
    were chosen (CHOICE@OUTPUT of a node); `path` counts the operators that gradients pass through; `frozen` the parameters
    that stay as they are.
    """

    gradient: str
    evaluation: str
    optimizer: str
    step: str
    loss: str
    optimizer_name: str
    label: TensorSpec
    loss_output: str
    prediction: str
    metric: str
    parameters: tuple[TrainedTensor, ...]
    slots: tuple[str, ...]
    statistics: tuple[Statistic, ...] = ()
    merge: str = ""
    merged: tuple[str, ...] = ()
    adapters: str = ""
    lr: float = 1e-3
    classes: int = 0
    ignore_index: int | None = None
    class_weights: tuple[float, ...] = ()
    hyper: dict[str, float] = {}
    forms: dict[str, str] = {}
    path: dict[str, int] = {}
    frozen: int = 0
    notes: tuple[str, ...] = ()
    head: HeadSpec | None = None
    parts: tuple[GradientPart, ...] = ()
    optimizer_ns: int = 0

    @property
    def files(self) -> tuple[str, ...]:
        whole = (self.gradient, self.evaluation, self.optimizer, self.step, self.merge, self.adapters)
        features = (self.head.features,) if self.head is not None else ()
        return tuple(dict.fromkeys(f for f in (*whole, *features, *(p.file for p in self.parts)) if f))
