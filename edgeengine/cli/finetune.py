"""`edgeengine finetune`: train a bundle on labelled examples; the result is a version in the state folder."""

from __future__ import annotations

from typing import Annotated

import typer

from edgeengine.cli.console import Json, State, out, print_json, progress_bar

EXAMPLES = (
    "edgeengine finetune model.edge --data examples.npz",
    "edgeengine finetune model.edge --data examples.npz --steps 500 --batch 32 --lr 0.003 --schedule cosine",
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
    state: State = None,
    json: Json = False,
) -> None:
    """Fine-tune: shuffled batches, a hold-out measured before and after, a schedule. The bundle itself stays as it is."""
    from edgeengine.bundle import open_bundle
    from edgeengine.state import state_folder
    from edgeengine.training import Trainer, finetune
    from edgeengine.training.data import load_examples
    from edgeengine.training.state import restored
    from edgeengine.training.store import VersionStore

    opened = open_bundle(bundle, "trainable")
    store = VersionStore(state_folder(state), opened)
    earlier = store.present() if resume else None
    trainer = Trainer(opened, state=restored(opened, earlier[2]) if earlier is not None else None)
    label = trainer.spec.label
    examples = load_examples(data, trainer.inputs, label.name, label.dtype)
    with progress_bar() as bar:
        result = finetune(
            trainer,
            examples,
            steps=steps,
            batch=batch,
            micro_batch=micro_batch,
            lr=lr,
            schedule=schedule,
            warmup=warmup,
            holdout=holdout,
            seed=seed,
            progress=bar,
        )
    version = store.commit(trainer.version(), trainer.state.tensors())
    document = {
        "steps": result.steps,
        "loss_first": result.loss_first,
        "loss_last": result.loss_last,
        "metric": trainer.spec.metric,
        "metric_before": result.metric_before,
        "metric_after": result.metric_after,
        "version": version,
        "file": str(store.file(version)),
    }
    if json:
        print_json(document)
        return
    out.print(
        f"{result.steps} steps: loss {result.loss_first:.4g} -> {result.loss_last:.4g}; "
        f"{trainer.spec.metric} on the hold-out {result.metric_before:.4g} -> {result.metric_after:.4g}\n"
        f"version {version}: {store.file(version)}",
        soft_wrap=True,
        markup=False,
    )
