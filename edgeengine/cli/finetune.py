"""`edgeengine finetune`: train a bundle on labelled examples; the result is a version in the state folder."""

from __future__ import annotations

from typing import Annotated

import typer

from edgeengine.cli.console import Json, State, out, print_json, progress_bar

EXAMPLES = (
    "edgeengine finetune model.edge --data examples.npz",
    "edgeengine finetune model.edge --data examples.npz --steps 500 --batch 32 --lr 0.003 --schedule cosine",
    "edgeengine finetune model.edge --data more.npz --resume --store-kb 1024 --rehearse 16",
)


def command(
    bundle: Annotated[str, typer.Argument(help="A bundle that 'edgeengine trainable' made.")],
    data: Annotated[str, typer.Option(help="A .npz: one array per model input, and 'label'.")],
    steps: Annotated[int, typer.Option(help="Optimizer steps.")] = 200,
    batch: Annotated[int, typer.Option(help="Examples per step.")] = 16,
    micro_batch: Annotated[int | None, typer.Option(help="Examples per run; a step sums its runs' gradients.")] = None,
    lr: Annotated[float, typer.Option(help="The highest learning rate.")] = 1e-3,
    schedule: Annotated[str, typer.Option(help="constant, linear or cosine.")] = "cosine",
    warmup: Annotated[int, typer.Option(help="Steps in which the learning rate rises.")] = 0,
    holdout: Annotated[float, typer.Option(help="The share of examples kept aside to measure with.")] = 0.2,
    seed: Annotated[int, typer.Option(help="Of the hold-out and the order of batches.")] = 0,
    resume: Annotated[bool, typer.Option(help="Go on from the present version and optimizer state.")] = False,
    store_kb: Annotated[int, typer.Option(help="Keep examples in the state, at most so many KB; 0: none.")] = 0,
    rehearse: Annotated[int, typer.Option(help="Kept examples of earlier runs that join each step's batch.")] = 0,
    margin: Annotated[float, typer.Option(help="How much worse the metric may become for the version to serve.")] = 0.02,
    state: State = None,
    json: Json = False,
) -> None:
    """Fine-tune: shuffled batches, a hold-out measured before and after, a schedule. The bundle itself stays as it is.

    A version that is worse by more than the margin, on the hold-out or on what was kept aside of earlier runs, does not serve.
    """
    from edgeengine.bundle import open_bundle
    from edgeengine.errors import UserError
    from edgeengine.state import state_folder
    from edgeengine.training.data import load_examples
    from edgeengine.training.session import Finetuning
    from edgeengine.training.store import VersionStore

    if store_kb < 0 or rehearse < 0 or (rehearse and not store_kb):
        raise UserError(f"--store-kb {store_kb}, --rehearse {rehearse}: rehearsing needs a store of some KB")
    opened = open_bundle(bundle, "trainable")
    disk = VersionStore(state_folder(state), opened)
    tuning = Finetuning(opened, disk, store_bytes=store_kb << 10, resume=resume)
    spec = tuning.trainer.spec
    examples = load_examples(data, tuning.trainer.inputs, spec.label.name, spec.label.dtype)
    with progress_bar() as bar:
        session = tuning.run(
            examples, rehearse=rehearse, margin=margin, holdout=holdout, seed=seed,
            steps=steps, batch=batch, micro_batch=micro_batch, lr=lr, schedule=schedule, warmup=warmup, progress=bar,
        )  # fmt: skip
    result, record, file = session.result, session.record, disk.file(session.record.name)
    if json:
        print_json(
            {
                "steps": result.steps,
                "loss_first": result.loss_first,
                "loss_last": result.loss_last,
                "metric": spec.metric,
                "metric_before": result.metric_before,
                "metric_after": result.metric_after,
                "kept_before": session.kept_before,
                "kept_after": session.kept_after,
                "serves": not record.cause,
                "version": record.name,
                "file": str(file),
            }
        )
        return
    out.print(
        f"{result.steps} steps: loss {result.loss_first:.4g} -> {result.loss_last:.4g}; "
        f"{spec.metric} on the hold-out {result.metric_before:.4g} -> {result.metric_after:.4g}\n"
        f"version {record.name}{f', which does not serve: {record.cause}' if record.cause else ''}: {file}",
        soft_wrap=True,
        markup=False,
    )
