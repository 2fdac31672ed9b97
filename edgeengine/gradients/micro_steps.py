"""Cut the gradient graph into micro-steps of bounded time, by the splitter that cuts inference: plain tensors pass between."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from edgeengine.errors import UserError
from edgeengine.graph.candidates import CANDIDATES, Writer, finest
from edgeengine.graph.child import run_in_child
from edgeengine.graph.load import load_model
from edgeengine.graph.measured import Measure, Timer
from edgeengine.graph.study import study
from edgeengine.spec.bundle import Exactness
from edgeengine.spec.training import GradientPart

_STEM = "train_gradient_"


@dataclass(frozen=True)
class Pace:
    """How training graphs are measured, and cut: `examples` in a micro-batch, at most `limit_ns` a micro-step (None: uncut).

    `budget` bounds how many subgraphs are measured.
    """

    measure: Measure
    examples: int = 1
    limit_ns: float | None = None
    budget: int = CANDIDATES


def gradient_parts(folder: Path, file: str, pace: Pace, fixed_batch: int | None) -> tuple[GradientPart, ...]:
    """The gradient graph `file` in `folder` as measured there, cut where one run would take longer than `pace` allows.

    Every part is verified bit by bit against the whole. Raises UserError where no such cut is found.
    """
    model = load_model(folder / file)
    examples = fixed_batch or pace.examples
    shapes = {
        i.name: [d.dim_value if d.HasField("dim_value") else examples for d in i.type.tensor_type.shape.dim] for i in model.inputs
    }
    seen = study(model, shapes)
    writer = Writer(seen, folder, beside=True)
    timer = Timer(model, seen.cuts, writer, pace.measure, pace.budget)
    try:
        cut = timer.by_limit(pace.limit_ns) if pace.limit_ns is not None else timer.whole()
    except UserError as e:
        raise UserError(str(e).replace(str(model.path), f"the gradient graph of {examples} examples")) from e
    times = timer.latencies(cut)
    if len(times) == 1:
        return (GradientPart("gradient", file, examples, round(times[0])),)
    parts = writer.write(cut, finest(len(times)), stem=_STEM)
    run_in_child(parts.verify_job(), {}, Exactness, str(model.path))
    return tuple(
        GradientPart(f"gradient_{k}", s.file, examples, round(ns))
        for k, (s, ns) in enumerate(zip(parts.subgraphs, times, strict=True))
    )


def measured_alone(folder: Path, file: str, measure: Measure) -> int:
    """The time of one run of a graph with static shapes, in nanoseconds."""
    model = load_model(folder / file)
    seen = study(model)
    timer = Timer(model, seen.cuts, Writer(seen, folder, beside=True), measure, CANDIDATES)
    return round(timer.latencies(timer.whole())[0])
