"""`edgeengine inspect`: what a model is made of, and where it can be cut."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from edgeengine.cli.console import Json, note, out, print_json, print_table
from edgeengine.cli.options import parse_inputs, parse_shapes

EXAMPLES = (
    "edgeengine inspect model.onnx",
    "edgeengine inspect ocr.onnx --shape x=1x3x320x320 --json",
)


def command(
    model: Annotated[str, typer.Argument(help="The .onnx file.")],
    shape: Annotated[list[str] | None, typer.Option(help="Fix an input: name=1x3x224x224. Repeat for more.")] = None,
    input: Annotated[list[str] | None, typer.Option(help="Value to run with: name=16000, or FILE.npz.")] = None,
    fix: Annotated[list[str] | None, typer.Option(help="Make an input constant and fold what it decides: sr=16000.")] = None,
    json: Json = False,
) -> None:
    """Show operators, shapes, control flow, units, MACs and the narrowest places to cut."""
    from edgeengine.graph import inspect_model

    found: dict[str, Any] = inspect_model(model, parse_shapes(shape), parse_inputs(input), fix=parse_inputs(fix, "--fix"))
    if json:
        print_json(found)
        return
    opset = ", ".join(f"{domain or 'onnx'} {version}" for domain, version in found["opset"].items())
    ops = ", ".join(f"{n} {op}" for op, n in list(found["op_counts"].items())[:12])
    out.print(f"[bold]{found['file']}[/bold]  {found['bytes']:,} bytes, IR {found['ir_version']}, opset {opset}")
    out.print(f"{found['nodes']} nodes ({found['nodes_in_bodies']} more in bodies), {found['parameters']:,} parameters: {ops}")
    if found["run_error"]:
        note(f"does not run as it is: {found['run_error']}")
        return
    for text in found["assumed"]:
        note(text)
    macs = f"{found['macs']:,}" if found["macs"] is not None else f"unknown (no rule for {', '.join(found['unknown_ops'])})"
    out.print(f"MACs {macs}; {found['units']} units, at most {found['most_parts']} parts; largest unit: {found['largest_unit']}")
    for what in ("inputs", "outputs"):
        print_table(what, ["name", "type", "shape"], [[t["name"], t["dtype"], t["shape"]] for t in found[what]])
    print_table(
        "narrowest frontiers (edgeengine split --at T1,T2,…)",
        ["share of the work before", "bytes crossing", "tensors"],
        [[f"{f['share']:.0%}", f["bytes"], ",".join(t["name"] for t in f["tensors"])] for f in found["frontiers"]],
        numeric=["share of the work before", "bytes crossing"],
    )
    for text in found["unsupported"]:
        note(text)
