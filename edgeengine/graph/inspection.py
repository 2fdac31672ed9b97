"""Look into a model without building anything: what it is made of, what it costs, where it can be cut."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import onnx

from edgeengine.errors import UserError
from edgeengine.graph.dataflow import Dataflow, analyze, bodies, walk
from edgeengine.graph.drawing import draw_svg
from edgeengine.graph.dtypes import FROM_ONNX
from edgeengine.graph.fix import with_fixed
from edgeengine.graph.lattice import Frontier
from edgeengine.graph.load import Model, load_model
from edgeengine.graph.sizes import dims_of
from edgeengine.graph.study import Study, op_counts, study
from edgeengine.graph.units import describe
from edgeengine.graph.weights import parameters
from edgeengine.spec.tensor import TensorSpec


def inspect_model(
    model_path: str | Path,
    shapes: Mapping[str, Sequence[int]] | None = None,
    inputs: Mapping[str, np.ndarray] | None = None,
    frontiers: int = 8,
    fix: Mapping[str, np.ndarray] | None = None,
    svg: str | Path | None = None,
    parts: int | None = None,
) -> dict[str, object]:
    """What is known of the model at `model_path`, as plain JSON-able values; up to `frontiers` narrowest frontiers.

    `shapes`, `inputs` and `fix` are as for `build_bundle`. `svg` is a file to draw the model into, coloured by `parts` parts
    (or as many as a build would take). A model that does not run is still described;
    "run_error" then says why, and what needs a run is None.
    Raises UserError for a file that does not load.
    """
    original = load_model(model_path)
    with with_fixed(original, fix or {}) as model:
        result = _static(model, analyze(model)) | _file(original)
        try:
            seen = study(model, shapes, inputs)
        except UserError as e:
            if svg is not None:
                raise
            return result | {"run_error": str(e)} | dict.fromkeys(_RUN_KEYS)
        if svg is not None:
            draw_svg(seen, seen.cuts.by_default() if parts is None else seen.cuts.by_count(parts), Path(svg))
        return result | {"run_error": None} | _run_time(seen, frontiers)


_RUN_KEYS = (
    "shapes", "assumed", "units", "macs", "costliest", "unknown_ops", "frontiers", "widest", "frontiers_found",
    "all_frontiers_found", "single_tensor_cut", "most_parts", "largest_unit", "unsupported",
)  # fmt: skip


def _static(model: Model, flow: Dataflow) -> dict[str, object]:
    nodes = model.proto.graph.node
    elements, nbytes = parameters(flow.initializers.values(), nodes)
    control = [i for i, n in enumerate(nodes) if bodies(n)]
    return {
        **_file(model),
        "ir_version": model.proto.ir_version,
        "opset": dict(model.opset),
        "nodes": len(nodes),
        "nodes_in_bodies": sum(1 for _ in walk(nodes)) - len(nodes),
        "constant_nodes": len(flow.constants),
        "op_counts": op_counts(flow, range(len(nodes))),
        "functions": [f"{f.domain}.{f.name}" for f in model.proto.functions],
        "control_flow": [flow.label(i) for i in control],
        "inputs": [_declared(v) for v in model.inputs],
        "outputs": [_declared(v) for v in model.proto.graph.output],
        "dynamic_dims": _dynamic(model),
        "parameters": elements,
        "weight_bytes": nbytes,
    }


def _dynamic(model: Model) -> dict[str, list[str]]:
    """Each free dimension of the inputs, by its name or "input[axis]" -> where it occurs."""
    found: dict[str, list[str]] = {}
    for value in model.inputs:
        for axis, dim in enumerate(dims_of(value) or ()):
            if isinstance(dim, str):
                place = f"{value.name}[{axis}]"
                found.setdefault(dim if dim != "?" else place, []).append(place)
    return found


def _file(model: Model) -> dict[str, object]:
    return {
        "file": model.path.name,
        "bytes": model.path.stat().st_size + sum((model.folder / f).stat().st_size for f in model.external),
        "sha256": model.sha256,
    }


def _run_time(seen: Study, frontiers: int) -> dict[str, object]:
    flow, cuts = seen.flow, seen.cuts
    macs, unknown = seen.macs(flow.order)
    inner = cuts.lattice.frontiers[1:-1]
    narrowest = _narrowest(seen, inner, frontiers)
    widest = max(inner, key=lambda f: (f.nbytes, len(f.tensors)), default=None)
    return {
        "shapes": {n: list(s) for n, s in seen.tensors.fixed.items()},
        "assumed": list(seen.tensors.assumed),
        "units": len(seen.units),
        "macs": macs,
        "unknown_ops": list(unknown),
        "costliest": _costliest(seen),
        "frontiers": [_frontier(seen, f) for f in sorted(narrowest, key=cuts.share)],
        "widest": None if widest is None else _frontier(seen, widest),
        "frontiers_found": len(inner),
        "all_frontiers_found": cuts.lattice.complete,
        "single_tensor_cut": any(len(f.tensors) == 1 for f in inner),
        "most_parts": cuts.most,
        "largest_unit": cuts.largest() if seen.units else None,
        "unsupported": _unsupported(seen),
    }


def _narrowest(seen: Study, inner: Sequence[Frontier], count: int) -> list[Frontier]:
    """The narrowest frontier of each stretch of the work, then the narrowest of all, `count` in sum."""
    ranked = sorted(inner, key=lambda f: (len(f.tensors), f.nbytes, f.size, f.before))
    stretches: dict[int, Frontier] = {}
    for frontier in ranked:
        stretches.setdefault(int(seen.cuts.share(frontier) * count * 0.999), frontier)
    return list({f.before: f for f in (*stretches.values(), *ranked)}.values())[:count]


def _costliest(seen: Study, count: int = 5) -> list[dict[str, object]]:
    """The units with the most multiply-accumulates, and their share of the whole."""
    total, _ = seen.macs(seen.flow.order)
    each = [(seen.macs(unit.nodes)[0] or 0, u) for u, unit in enumerate(seen.units)]
    return [
        {"unit": describe(seen.flow, seen.units[u]), "macs": macs, "share": round(macs / total, 4) if total else 0.0}
        for macs, u in sorted(each, key=lambda pair: (-pair[0], pair[1]))[:count]
        if macs
    ]


def _frontier(seen: Study, frontier: Frontier) -> dict[str, object]:
    return {
        "position": frontier.size,
        "tensors": [_tensor(seen.tensors.at[t]) for t in frontier.tensors],
        "bytes": frontier.nbytes,
        "share": round(seen.cuts.share(frontier), 4),
    }


def _unsupported(seen: Study) -> list[str]:
    """Constructs that limit what can be done with this model."""
    flow = seen.flow
    found = [f"{flow.label(i)} draws random numbers: the model cannot be built" for i in flow.random_nodes()]
    found += [f"{t} ({kind}) cannot cross a boundary" for t, kind in seen.tensors.unportable.items() if flow.is_runtime(t)]
    found += [f"{describe(flow, u)} cannot be cut inside" for u in seen.units if any(bodies(flow.nodes[n]) for n in u.nodes)]
    return found


def _declared(value: onnx.ValueInfoProto) -> dict[str, object]:
    """As the file declares it: dtype and shape None where it declares none, dtype a word for what is no plain tensor."""
    kind = value.type.WhichOneof("value") or ""
    dtype = FROM_ONNX.get(value.type.tensor_type.elem_type) if kind == "tensor_type" else kind.removesuffix("_type")
    dims = dims_of(value)
    return {"name": value.name, "dtype": dtype or None, "shape": None if dims is None else list(dims)}


def _tensor(spec: TensorSpec) -> dict[str, object]:
    return {"name": spec.name, "dtype": spec.dtype, "shape": list(spec.shape), "bytes": spec.nbytes}
