"""`edgeengine profile`: measure every candidate subgraph of a model on the processors of this machine."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from edgeengine.cli.console import Json, State, print_json, print_table, progress_bar
from edgeengine.cli.options import fit_input, parse_inputs, parse_shapes

if TYPE_CHECKING:
    from edgeengine.bundle import Bundle
    from edgeengine.devices.providers.base import Tensors
    from edgeengine.spec import Manifest, Processor, ProfileRow

EXAMPLES = (
    "edgeengine profile model.edge",
    "edgeengine profile model.onnx --shape x=1x3x224x224 --processor cpu0",
)


def command(
    model: Annotated[str, typer.Argument(help="A bundle or an .onnx file.")],
    processor: Annotated[list[str] | None, typer.Option(help="Only on this processor; repeat for more.")] = None,
    shape: Annotated[list[str] | None, typer.Option(help="For an .onnx: fix an input, name=1x3x224x224.")] = None,
    input: Annotated[list[str] | None, typer.Option(help="Value to run with: name=16000, or FILE.npz.")] = None,
    seconds: Annotated[float, typer.Option(help="Time to measure for.")] = 5.0,
    period_ms: Annotated[float | None, typer.Option(help="Also measure the whole model at this period.")] = None,
    strict: Annotated[bool, typer.Option("--strict", help="Refuse parts of which nodes fall back to another provider.")] = False,
    output: Annotated[str | None, typer.Option("-o", "--output", help="Also write the rows as JSON.")] = None,
    state: State = None,
    json: Json = False,
) -> None:
    """Measure latencies (p50, p99; all quantiles with --json), session creation and memory; rows are kept for planning."""

    from edgeengine.bundle import open_bundle
    from edgeengine.cli.resolve import cached_build, choose_processors
    from edgeengine.devices import device_id
    from edgeengine.devices.providers import load_providers
    from edgeengine.engine.dataflow import run_inputs
    from edgeengine.errors import UserError
    from edgeengine.io import make_source
    from edgeengine.profiling import (
        ProfileStore,
        candidates_of,
        chain_tensors,
        export_json,
        measure_back_to_back,
    )  # fmt: skip
    from edgeengine.reporting import write_file
    from edgeengine.state import state_folder

    if not seconds > 0 or (period_ms is not None and not 0.01 <= period_ms <= 1e6):
        raise UserError("profile: --seconds must be positive, --period-ms between 0.01 and 1e6")
    folder = state_folder(state)
    processors, given = choose_processors(processor), parse_inputs(input)
    with progress_bar() as bar:
        if Path(model).is_dir():
            if shape:
                raise UserError("profile: --shape is for an .onnx; a bundle has the shapes it was built with")
            bundle = open_bundle(model)
        else:
            bundle = cached_build(Path(model), folder, parse_shapes(shape), given, bar)
        specs = run_inputs(bundle)
        for spec in specs:
            if not spec.is_static:
                raise UserError(f"profile: input {spec.name!r} has shape {spec.shape}; rebuild the bundle with --shape")
        rest = [s for s in specs if s.name not in given]
        inputs = {s.name: fit_input(given[s.name], s) for s in specs if s.name in given}
        inputs |= make_source("random:0", rest).read(0, 0)
        providers, device = load_providers(strict=strict), device_id()
        first = processors[0]
        tensors = chain_tensors(bundle, inputs, load_providers()[first.provider], first)
        rows = measure_back_to_back(
            candidates_of(bundle, processors), {bundle.hash: tensors}, providers, device,
            budget_s=seconds, progress=lambda share: bar("measuring back to back", share),
        )  # fmt: skip
        if period_ms is not None:
            bar(f"measuring every {period_ms:g} ms", 0.0)
            rows += _at_period(bundle, processors, rows, inputs, period_ms, max(seconds, 20 * period_ms / 1e3))
    ProfileStore(folder / "profile.sqlite").put(rows)
    if output is not None:
        write_file(Path(output), export_json(rows, [])[0])
    if json:
        print_json({"device": device, "bundle": str(bundle.path), "hash": bundle.hash, "rows": rows})
        return
    for condition in dict.fromkeys(r.condition for r in rows):
        _print_condition(bundle.manifest, device, condition, [r for r in rows if r.condition == condition])


def _at_period(
    bundle: Bundle, processors: list[Processor], rows: list[ProfileRow], inputs: Tensors, period_ms: float, seconds: float
) -> list[ProfileRow]:
    """The whole model alone, at its period, on each processor in turn."""
    from edgeengine.devices import device_id
    from edgeengine.engine.rehearse import rehearse, rehearsed_rows
    from edgeengine.io import Fixed
    from edgeengine.spec import Plan, Step, TaskPlan
    from edgeengine.spec.plan import SCHEMA
    from edgeengine.workload import Task, Workload

    whole, name = bundle.manifest.whole, "model"
    latency = {r.processor: r.latency for r in rows if r.subgraph == whole.name}
    steps = tuple(Step(whole.name, whole.start, whole.stop, p, measured) for p, measured in latency.items())
    usable = tuple(p for p in processors if p.usable)
    plan = Plan(SCHEMA, device_id(), "", usable, (TaskPlan(name, bundle.hash, bundle.manifest.segments, steps),))
    workload = Workload((Task(name, model=str(bundle.path), period_ms=period_ms, inputs="source:inputs"),))
    done = rehearse(workload, plan, {name: bundle}, {"inputs": Fixed(inputs)}, seconds, turns=None)
    return rehearsed_rows(done, workload, plan, rows)


def _print_condition(manifest: Manifest, device: str, condition: str, rows: list[ProfileRow]) -> None:
    """A line per subgraph, p50 and p99 on each processor."""
    processors = list(dict.fromkeys(r.processor for r in rows))
    found = {(r.subgraph, r.processor): r for r in rows}
    lines = []
    for s in manifest.subgraphs:
        mine = [found[s.name, p] for p in processors if (s.name, p) in found]
        if not mine:
            continue
        times = [v for r in mine for v in (r.latency.p50_ns / 1e6, r.latency.p99_ns / 1e6)]
        memory = max((r.resident_bytes or 0 for r in mine), default=0) / 1e6
        lines.append([s.name, s.nodes, s.macs, *times, mine[0].latency.n, max(r.create_ns for r in mine) / 1e6, memory])
    timed = [f"{p} {q}" for p in processors for q in ("p50", "p99")]
    columns = ["subgraph", "nodes", "MACs", *timed, "n", "create", "MB"]
    title = f"{manifest.name} on {device}, {condition.replace('_', ' ')} (ms)"
    print_table(title, columns, lines, numeric=columns[1:])
