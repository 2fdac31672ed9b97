"""`edgeengine trainable`: a model becomes a bundle that can also train, with ONNX Runtime alone."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Annotated

import typer

from edgeengine.cli.console import Json, note, out, print_json, print_table, progress_bar
from edgeengine.cli.options import parse_inputs, parse_shapes
from edgeengine.cli.split import noting

if TYPE_CHECKING:
    from edgeengine.bundle import Bundle

EXAMPLES = (
    "edgeengine trainable model.onnx -o model.edge --train head",
    "edgeengine trainable detector.onnx -o detector.edge --train last:2 --loss bce --output scores",
    "edgeengine trainable encoder.onnx -o encoder.edge --train 'lora:rank=4;head' --optimizer adamw --weight-decay 0.01",
)


def command(
    model: Annotated[str, typer.Argument(help="The .onnx file.")],
    output_bundle: Annotated[str, typer.Option("-o", help="The bundle to write, NAME.edge.")],
    train: Annotated[
        str, typer.Option(help="all, head, last:N, bias+norm, lora:rank=R, or a pattern of weight or node names; join by ';'.")
    ] = "all",
    loss: Annotated[
        str, typer.Option(help="cross_entropy, der, bce, mse, l1, huber, distill, distill_mse, triplet or contrastive.")
    ] = "cross_entropy",
    optimizer: Annotated[str, typer.Option(help="sgd, momentum, nesterov, adam, adamw, lion or mixclip.")] = "mixclip",
    output: Annotated[str | None, typer.Option(help="The output the loss is taken on, where there are several.")] = None,
    weight_decay: Annotated[float, typer.Option(help="Of matrices; biases and normalizations never decay.")] = 0.0,
    clip_norm: Annotated[float | None, typer.Option(help="Bound the norm of all gradients together.")] = None,
    label_smoothing: Annotated[float, typer.Option(help="Of cross_entropy, 0 to 1.")] = 0.0,
    class_weights: Annotated[str | None, typer.Option(help="Of cross_entropy: one number per class, W,W,…")] = None,
    ignore_index: Annotated[int | None, typer.Option(help="Of cross_entropy: a label that does not count.")] = None,
    batch_norm: Annotated[str, typer.Option(help="frozen statistics, or update them from the batches.")] = "frozen",
    shape: Annotated[list[str] | None, typer.Option(help="Fix an input: name=1x3x224x224. Repeat for more.")] = None,
    input: Annotated[list[str] | None, typer.Option(help="Value to verify with: name=16000, or FILE.npz.")] = None,
    fix: Annotated[list[str] | None, typer.Option(help="Make an input constant and fold what it decides: sr=16000.")] = None,
    micro_batch: Annotated[int, typer.Option(help="Examples in a run that is measured, where the batch is free.")] = 1,
    max_micro_step_ms: Annotated[float | None, typer.Option(help="Cut the gradient graph into runs of at most this.")] = None,
    processor: Annotated[str | None, typer.Option(help="Measure on this one; the first of 'edgeengine devices' else.")] = None,
    json: Json = False,
) -> None:
    """Make a bundle with training graphs: gradients, optimizer and evaluation in plain ONNX over the same weights."""
    from edgeengine.cli.measuring import Measurer
    from edgeengine.cli.racing import Racer
    from edgeengine.errors import UserError
    from edgeengine.gradients import Chooser, LossOptions, Pace, Request, build_trainable

    if batch_norm not in ("frozen", "update"):
        raise UserError(f"--batch-norm {batch_norm!r}: give frozen or update")
    if micro_batch < 1 or (max_micro_step_ms is not None and not max_micro_step_ms > 0):
        raise UserError(f"--micro-batch {micro_batch}, --max-micro-step-ms {max_micro_step_ms}: both must be above 0")
    limit_ns = max_micro_step_ms * 1e6 if max_micro_step_ms is not None else None

    @cache  # finding processors takes seconds: not before what can be refused without is
    def measurer() -> Measurer:
        return Measurer({}, processor)

    request = Request(
        train=train,
        loss=loss,
        optimizer=optimizer,
        output=output,
        options=LossOptions(_numbers(class_weights), label_smoothing, ignore_index),
        weight_decay=weight_decay,
        clip_norm=clip_norm,
        update_statistics=batch_norm == "update",
        chooser=Chooser(lambda models, feeds: Racer(measurer().processor)(models, feeds), micro_batch),
    )
    with progress_bar() as bar:
        bundle = build_trainable(
            model,
            output_bundle,
            request,
            shapes=parse_shapes(shape),
            inputs=parse_inputs(input),
            fix=parse_inputs(fix, "--fix"),
            pace=Pace(lambda trial, subgraphs: measurer()(trial, subgraphs), micro_batch, limit_ns),
            progress=noting(bar),
        )
    _report(bundle, json)


def _numbers(text: str | None) -> tuple[float, ...]:
    from edgeengine.errors import UserError

    try:
        return tuple(float(w) for w in text.split(",")) if text else ()
    except ValueError as e:
        raise UserError(f"--class-weights {text!r}: give numbers joined by commas") from e


def _report(bundle: Bundle, json: bool) -> None:
    spec = bundle.manifest.training
    assert spec is not None
    for text in spec.notes:
        note(text)
    elements = sum(_size(p.shape) for p in spec.parameters)
    if json:
        print_json(
            {
                "bundle": str(bundle.path),
                "hash": bundle.hash,
                "loss": spec.loss,
                "optimizer": spec.optimizer_name,
                "label": spec.label,
                "parameters": spec.parameters,
                "trained_elements": elements,
                "frozen": spec.frozen,
                "statistics": [s.name for s in spec.statistics],
                "operators_on_path": spec.path,
                "formulations": spec.forms,
                "micro_steps": [
                    *({"name": p.name, "examples": p.examples, "latency_ms": p.latency_ns / 1e6} for p in spec.parts),
                    {"name": "optimizer", "examples": None, "latency_ms": spec.optimizer_ns / 1e6},
                ],
                "notes": spec.notes,
            }
        )
        return
    print_table(
        f"{bundle.path}: {len(spec.parameters)} tensors train ({elements} numbers), {spec.frozen} stay frozen",
        ["parameter", "shape", "decays"],
        [[p.name, "x".join(map(str, p.shape)) or "scalar", "yes" if p.decays else "no"] for p in spec.parameters],
    )
    runs = ", ".join(f"{p.name} {p.latency_ns / 1e6:.3g} ms" for p in spec.parts)
    out.print(f"a step of {spec.parts[0].examples}: {runs}, optimizer {spec.optimizer_ns / 1e6:.3g} ms", soft_wrap=True)
    out.print(f"gradients pass through: {', '.join(f'{op} {n}' for op, n in spec.path.items())}", soft_wrap=True, markup=False)


def _size(shape: tuple[int, ...]) -> int:
    size = 1
    for d in shape:
        size *= d
    return size
