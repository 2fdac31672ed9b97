"""`edgeengine inspect`: what a model is made of, and where it can be cut."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from rich.markup import escape

from edgeengine.cli.console import Json, note, out, print_json, print_table
from edgeengine.cli.options import parse_inputs, parse_shapes
from edgeengine.spec import format_shape

EXAMPLES = (
    "edgeengine inspect model.onnx",
    "edgeengine inspect model.onnx --svg model.svg --parts 3",
    "edgeengine inspect ocr.onnx --shape x=1x3x320x320 --json",
)


def command(
    model: Annotated[str, typer.Argument(help="The .onnx file.")],
    shape: Annotated[list[str] | None, typer.Option(help="Fix an input: name=1x3x224x224. Repeat for more.")] = None,
    input: Annotated[list[str] | None, typer.Option(help="Value to run with: name=16000, or FILE.npz.")] = None,
    fix: Annotated[list[str] | None, typer.Option(help="Make an input constant and fold what it decides: sr=16000.")] = None,
    svg: Annotated[str | None, typer.Option(help="Draw the model into this file, coloured by parts.")] = None,
    parts: Annotated[int | None, typer.Option(help="Parts to colour the drawing by.")] = None,
    json: Json = False,
) -> None:
    """Show operators, shapes, control flow, units, MACs and the narrowest and widest places to cut."""
    from edgeengine.graph import inspect_model

    found: dict[str, Any] = inspect_model(
        model, parse_shapes(shape), parse_inputs(input), fix=parse_inputs(fix, "--fix"), svg=svg, parts=parts
    )
    if json:
        print_json(found)
        return
    _print_file(found)
    if found["run_error"]:
        note(f"does not run as it is: {found['run_error']}")
        return
    for text in found["assumed"]:
        note(text)
    _print_work(found)
    for text in found["unsupported"]:
        note(text)
    if svg is not None:
        note(f"drawn: {svg}")


def _print_file(found: dict[str, Any]) -> None:
    opset = ", ".join(f"{domain or 'onnx'} {version}" for domain, version in found["opset"].items())
    ops = ", ".join(f"{n} {op}" for op, n in list(found["op_counts"].items())[:12])
    more = f" and {len(found['op_counts']) - 12} kinds more" if len(found["op_counts"]) > 12 else ""
    out.print(f"[bold]{escape(found['file'])}[/bold]  {_size(found['bytes'])}, IR {found['ir_version']}, opset {escape(opset)}")
    inside = f" and {found['nodes_in_bodies']} in bodies" if found["nodes_in_bodies"] else ""
    constant = f", {found['constant_nodes']} of them constant" if found["constant_nodes"] else ""
    out.print(f"{found['nodes']} nodes{inside}{constant}: {ops}{more}", soft_wrap=True)
    out.print(f"{found['parameters']:,} parameters, {_size(found['weight_bytes'])} of weights")
    for name, places in found["dynamic_dims"].items():
        out.print(f"free dimension {name}" + ("" if places == [name] else f" at {', '.join(places)}"), markup=False)
    if found["functions"]:
        out.print(f"local functions: {', '.join(found['functions'])}", markup=False)
    for what in ("inputs", "outputs"):
        rows = [
            [t["name"], t["dtype"], "-" if t["shape"] is None else "x".join(map(str, t["shape"])) or "scalar"]
            for t in found[what]
        ]
        print_table(what, ["name", "type", "shape"], rows)


def _print_work(found: dict[str, Any]) -> None:
    macs = f"{found['macs']:,}" if found["macs"] is not None else f"unknown (no rule for {', '.join(found['unknown_ops'])})"
    at = ", ".join(f"{n}={format_shape(s)}" for n, s in found["shapes"].items())
    out.print(f"{macs} multiply-accumulates at {at or 'no inputs'}", markup=False, soft_wrap=True)
    out.print(
        f"{found['units']} units, so at most {found['most_parts']} parts; largest unit: {found['largest_unit']}",
        markup=False, soft_wrap=True,
    )  # fmt: skip
    if found["costliest"]:
        rows = [[c["unit"], c["macs"], f"{c['share']:.0%}"] for c in found["costliest"]]
        print_table("where the work is", ["unit", "MACs", "share"], rows, numeric=["MACs", "share"])
    every = "all" if found["all_frontiers_found"] else "the lightest"
    lines = [_frontier(f) for f in found["frontiers"]]
    if found["widest"]:
        lines.append(["widest", *_frontier(found["widest"])[1:]])
    print_table(
        f"narrowest frontiers of {found['frontiers_found']} ({every}); cut with edgeengine split --at T1,T2,…",
        ["share of the work before", "bytes crossing", "tensors"], lines,
        numeric=["share of the work before", "bytes crossing"],
    )  # fmt: skip


def _frontier(found: dict[str, Any]) -> list[object]:
    return [f"{found['share']:.0%}", _size(found["bytes"]), ",".join(t["name"] for t in found["tensors"])]


def _size(nbytes: int) -> str:
    size = float(nbytes)
    for unit in ("bytes", "kB", "MB"):
        if size < 1000:
            return f"{size:.3g} {unit}" if unit != "bytes" else f"{nbytes} bytes"
        size /= 1000
    return f"{size:.3g} GB"
