"""The manifest of a bundle `name.edge/`: everything of one model that does not depend on the device.

A model is cut at `segments - 1` frontiers into `segments` consecutive segments. A bundle holds candidate subgraphs, each the
segments [start, stop) extracted as one ONNX graph; a chain of subgraphs with start 0, …, stop `segments` runs the whole model.
"""

from __future__ import annotations

import msgspec

from edgeengine.errors import UserError
from edgeengine.spec.features import Features
from edgeengine.spec.tensor import TensorSpec
from edgeengine.spec.training import TrainingSpec

SCHEMA = 1


class SubgraphSpec(msgspec.Struct, frozen=True):
    """One candidate subgraph. `file` lies in the bundle's root. Tensor names are those of the source model.

    `macs` counts multiply-accumulates at the manifest's shapes, None where an operator has no cost rule (named in
    `unknown_ops`). `features` is what a cost model prices, None where there are any. `denormal_weights` counts the weights too
    small for a normal float. `inputs` lists only what crosses into the subgraph at run time, never weights.
    """

    name: str
    file: str
    start: int
    stop: int
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    nodes: int
    macs: int | None = None
    parameters: int = 0
    weight_bytes: int = 0
    denormal_weights: int = 0
    op_counts: dict[str, int] = {}
    unknown_ops: tuple[str, ...] = ()
    features: Features | None = None


class Exactness(msgspec.Struct, frozen=True):
    """What verification found. Differences are relative to the output range of the reference (CPU, 1 thread, unoptimized)."""

    runs: int
    bit_equal_unoptimized: bool
    max_abs_diff: float
    max_rel_diff_optimized: float
    whole_rel_diff_optimized: float


class Manifest(msgspec.Struct, frozen=True):
    """`shapes` fixes the inputs the candidates were measured and verified with; `inputs` keeps the model's own dimensions.

    `fixed` are the model's inputs that the build made constant, with their value as text: they are no inputs any more.
    `training` describes the training graphs, None where there are none. `files` maps every file of the bundle but the
    manifest to its sha256. The bundle's identity is the sha256 of the manifest's bytes.
    """

    schema: int
    name: str
    source: str
    source_sha256: str
    tools: dict[str, str]
    ir_version: int
    opset: dict[str, int]
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    shapes: dict[str, tuple[int, ...]]
    segments: int
    subgraphs: tuple[SubgraphSpec, ...]
    files: dict[str, str]
    exactness: Exactness
    preprocessing: dict[str, object] = {}
    fixed: dict[str, str] = {}
    training: TrainingSpec | None = None

    @property
    def whole(self) -> SubgraphSpec:
        """The candidate that is the whole model; every bundle has one."""
        return next(s for s in self.subgraphs if s.start == 0 and s.stop == self.segments)

    def subgraph(self, name: str) -> SubgraphSpec:
        """Raises UserError for a name that the bundle does not have."""
        for s in self.subgraphs:
            if s.name == name:
                return s
        raise UserError(f"bundle {self.name!r} has no subgraph {name!r}; known: {', '.join(s.name for s in self.subgraphs)}")
