"""`edgeengine split`: cut a model into a bundle of subgraphs, verified bit by bit."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from edgeengine.cli.console import Bar, Json, note, out, print_json, print_table, progress_bar
from edgeengine.cli.options import OPTION_HELP, parse_inputs, parse_options, parse_shapes

if TYPE_CHECKING:
    from edgeengine.bundle import Bundle
    from edgeengine.spec import Placement, TensorSpec

EXAMPLES = (
    "edgeengine split model.onnx -o model.edge --parts 3",
    "edgeengine split model.onnx -o model.edge --max-part-ms 2",
    "edgeengine split model.onnx -o model.edge --at relu_3,pool_1",
    "edgeengine split model.onnx -o model.edge --for npu-qnn",
    "edgeengine split vad.onnx -o vad.edge --parts 5 --shape input=1x576 --fix sr=16000",
)


def command(
    model: Annotated[str, typer.Argument(help="The .onnx file.")],
    output: Annotated[str, typer.Option("-o", "--output", help="The bundle to write, NAME.edge.")],
    parts: Annotated[int | None, typer.Option(help="Number of parts, of equal measured time.")] = None,
    max_part_ms: Annotated[float | None, typer.Option(help="As few parts as possible, none longer than this.")] = None,
    at: Annotated[list[str] | None, typer.Option(help="Cut after these tensors (T1,T2,…); repeat for more cuts.")] = None,
    for_processor: Annotated[str | None, typer.Option("--for", help="Cut at what this processor takes.")] = None,
    shape: Annotated[list[str] | None, typer.Option(help="Fix an input: name=1x3x224x224. Repeat for more.")] = None,
    input: Annotated[list[str] | None, typer.Option(help="Value to verify with: name=16000, or FILE.npz.")] = None,
    fix: Annotated[list[str] | None, typer.Option(help="Make an input constant and fold what it decides: sr=16000.")] = None,
    max_tensors: Annotated[int | None, typer.Option(help="A boundary passes at most this many tensors.")] = None,
    max_bytes: Annotated[int | None, typer.Option(help="A boundary passes at most this many bytes.")] = None,
    budget: Annotated[int, typer.Option(help="Measure, and keep as candidates, at most this many subgraphs.")] = 64,
    processor: Annotated[str | None, typer.Option(help="Measure on this one; the first of 'edgeengine devices' else.")] = None,
    option: Annotated[list[str] | None, typer.Option(help=OPTION_HELP)] = None,
    measure: Annotated[bool, typer.Option(help="Balance --parts by time measured here, else by operations counted.")] = True,
    json: Json = False,
) -> None:
    """Cut a model into parts. The parts in chain give exactly what the whole gives, or the command fails."""
    from edgeengine.cli.measuring import Measurer
    from edgeengine.cli.taking import Taker
    from edgeengine.errors import UserError
    from edgeengine.graph import Limits, build_bundle

    if parts is None and not at and max_part_ms is None and for_processor is None:
        raise UserError(
            "split: say how: --parts N, --max-part-ms X, --at TENSOR,… or --for PROCESSOR; 'edgeengine inspect MODEL' lists good "
            "places, 'edgeengine devices' processors"
        )
    options = parse_options(option)
    taker = None if for_processor is None else Taker(for_processor, options)
    limited = max_tensors is not None or max_bytes is not None
    given = parse_inputs(input)
    with progress_bar() as bar:
        bundle = build_bundle(
            model,
            output,
            parts=parts,
            at=[group.split(",") for group in at] if at else None,
            shapes=parse_shapes(shape),
            max_part_ms=max_part_ms,
            left=taker,
            measure=Measurer(given, processor, options=options)
            if (parts is not None and measure) or max_part_ms is not None
            else None,
            budget=budget,
            limits=Limits(max_tensors, max_bytes) if limited else None,
            inputs=given,
            fix=parse_inputs(fix, "--fix"),
            progress=noting(bar),
        )
    placements = None
    if taker is not None:
        finest = tuple(s for s in bundle.manifest.subgraphs if s.stop == s.start + 1)
        placements = dict(zip((s.name for s in finest), taker.placements(bundle, finest), strict=True))
    report_bundle(bundle, json, placements)


def noting(bar: Bar) -> Callable[[str, float], None]:
    """Progress that also keeps what was assumed on screen."""

    def tell(text: str, share: float) -> None:
        if text.startswith(("assum", "the cut at", "measured ")) or "--shape" in text or "--input" in text:
            note(text)
        bar(text, share)

    return tell


def report_bundle(bundle: Bundle, json: bool, placements: Mapping[str, Placement] | None = None) -> None:
    """Print the finest parts of a bundle, how exact they are, and what a processor took of each, where one was asked."""
    m = bundle.manifest
    finest = [s for s in m.subgraphs if s.stop == s.start + 1]
    exact = m.exactness
    if json:
        print_json(
            {
                "bundle": str(bundle.path),
                "hash": bundle.hash,
                "parts": finest,
                "placements": placements,
                "candidates": len(m.subgraphs),
                "verified": exact.bit_equal_unoptimized,
                "max_abs_diff": exact.max_abs_diff,
                "max_rel_diff_optimized": exact.max_rel_diff_optimized,
                "shapes": m.shapes,
            }
        )
        return
    print_table(
        f"{bundle.path}: {m.segments} parts, {len(m.subgraphs)} candidate subgraphs",
        ["part", "nodes", "MACs", "parameters", "inputs", "outputs", *(["taken"] if placements else [])],
        [
            [s.name, s.nodes, s.macs, s.parameters, _tensors(s.inputs), _tensors(s.outputs)]
            + ([_taken(placements[s.name])] if placements else [])
            for s in finest
        ],
        numeric=["nodes", "MACs", "parameters"],
    )
    out.print(
        f"verified in {exact.runs} runs: parts without optimization are bit-equal to the whole; with it they differ by at most "
        f"{exact.max_rel_diff_optimized:.2g} of the output range (the whole itself by {exact.whole_rel_diff_optimized:.2g})",
        soft_wrap=True,
    )


def _taken(placement: Placement) -> str:
    """Nodes that the processor took, of all that the runtime made of the part."""
    return f"{placement.nodes.get(placement.asked, 0)} of {sum(placement.nodes.values())}"


def _tensors(specs: Sequence[TensorSpec]) -> str:
    return "\n".join(f"{t.name} {t.dtype}[{','.join(map(str, t.shape))}]" for t in specs)
