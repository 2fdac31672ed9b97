"""`edgeengine convert`: a PyTorch or ONNX source becomes a verified .onnx file, float or quantized."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from edgeengine.cli.console import Json, note, out, print_json, print_table, progress_bar
from edgeengine.cli.options import parse_inputs, parse_shapes

if TYPE_CHECKING:
    from edgeengine.conversion import Converted

EXAMPLES = (
    "edgeengine convert my_package.models:make -o model.onnx",
    "edgeengine convert exported.pt2 -o model.onnx --opset 20",
    "edgeengine convert old.onnx -o new.onnx",
    "edgeengine convert model.onnx -o small.onnx --quantize int8-qdq --calibrate some.npz --evaluate others.npz",
)


def command(
    source: Annotated[str, typer.Argument(help="module:callable giving (module, example inputs), or a .pt2 or .onnx file.")],
    output: Annotated[str, typer.Option("-o", "--output", help="The .onnx file to write.")],
    opset: Annotated[int | None, typer.Option(help="Opset of the result; at least 18 where not given.")] = None,
    quantize: Annotated[str | None, typer.Option(help="int8-qdq or fp16.")] = None,
    calibrate: Annotated[str | None, typer.Option(help="FILE.npz: an array of typical samples per input.")] = None,
    evaluate: Annotated[
        str | None, typer.Option(help="FILE.npz to compare float and quantized on; with 'label', by accuracy.")
    ] = None,
    max_drop: Annotated[
        float, typer.Option(help="Refuse past this: points of accuracy lost, or RMS error in % of the output range.")
    ] = 1.0,
    shape: Annotated[list[str] | None, typer.Option(help="Fix an input of a .onnx: name=1x3x224x224. Repeat for more.")] = None,
    input: Annotated[list[str] | None, typer.Option(help="Value to verify a .onnx with: name=16000, or FILE.npz.")] = None,
    json: Json = False,
) -> None:
    """Convert to ONNX, compared with the source at three batch sizes, and quantize on request. Pickles are never opened."""
    from edgeengine.conversion import Request, convert

    request = Request(
        opset=opset,
        quantize=quantize,
        calibration=parse_inputs([calibrate], "--calibrate") if calibrate is not None else None,
        evaluation=parse_inputs([evaluate], "--evaluate") if evaluate is not None else None,
        max_drop=max_drop,
        shapes=parse_shapes(shape),
        values=parse_inputs(input),
    )
    with progress_bar() as bar:
        done = convert(source, output, request, bar)
    for text in done.notes:
        note(text)
    if json:
        print_json(done)
    else:
        _print(done)


def _print(done: Converted) -> None:
    size = f"{done.bytes:,} bytes"
    out.print(f"{' and '.join(done.files)}: {size}, opset {done.opset}, IR {done.ir_version}", markup=False, soft_wrap=True)
    for what, tensors in (("inputs", done.inputs), ("outputs", done.outputs)):
        print_table(
            what, ["name", "type", "shape"], [[t.name, t.dtype, "x".join(map(str, t.shape)) or "scalar"] for t in tensors]
        )
    print_table(
        "float against source" if done.quantized else "against the source",
        ["batch", "largest difference", "of the output range"],
        [["fixed" if c.batch is None else c.batch, c.max_abs_diff, f"{c.max_rel_diff:.2g}"] for c in done.checks],
        numeric=["batch", "largest difference", "of the output range"],
    )
    if done.quantized is None:
        return
    found, by = done.quantized, done.quantized.accuracy
    print_table(
        f"{found.kind}: error",
        ["% of the range of", "RMS", "mean", "largest"],
        [[d.output, *(f"{100 * share:.2f}" for share in (d.rms, d.mean, d.max))] for d in by.outputs],
        numeric=["RMS", "mean", "largest"],
    )
    if by.accuracy is not None and by.float_accuracy is not None:
        out.print(f"accuracy {by.float_accuracy:.2f} % as float, {by.accuracy:.2f} % as {found.kind}", markup=False)
    share = f"{done.bytes / found.float_bytes:.0%} of {found.float_bytes:,} bytes"
    out.print(f"drop {by.drop:.2f} % on {by.samples} samples, allowed {found.max_drop:g}; {share}")
    if found.kept_float:
        out.print(f"left float: {', '.join(found.kept_float)}", markup=False, soft_wrap=True)
    if found.in_bodies:
        out.print(f"{found.in_bodies} nodes inside If, Loop or Scan stay float: the quantizer does not look there")
