"""`edgeengine build`: a model becomes a bundle, cut at good places."""

from __future__ import annotations

from typing import Annotated

import typer

from edgeengine.cli.console import Json, progress_bar
from edgeengine.cli.options import parse_inputs, parse_shapes
from edgeengine.cli.split import noting, report_bundle

EXAMPLES = (
    "edgeengine build model.onnx -o model.edge",
    "edgeengine build ocr.onnx -o ocr.edge --shape x=1x3x320x320",
)


def command(
    model: Annotated[str, typer.Argument(help="The .onnx file.")],
    output: Annotated[str, typer.Option("-o", "--output", help="The bundle to write, NAME.edge.")],
    shape: Annotated[list[str] | None, typer.Option(help="Fix an input: name=1x3x224x224. Repeat for more.")] = None,
    input: Annotated[list[str] | None, typer.Option(help="Value to verify with: name=16000, or FILE.npz.")] = None,
    fix: Annotated[list[str] | None, typer.Option(help="Make an input constant and fold what it decides: sr=16000.")] = None,
    json: Json = False,
) -> None:
    """Make a bundle: candidate subgraphs, weights, manifest. What runs where is decided later, by the plan."""
    from edgeengine.graph import build_bundle

    with progress_bar() as bar:
        bundle = build_bundle(
            model,
            output,
            shapes=parse_shapes(shape),
            inputs=parse_inputs(input),
            fix=parse_inputs(fix, "--fix"),
            progress=noting(bar),
        )
    report_bundle(bundle, json)
