"""`edgeengine finetune`: train a bundle on labelled examples; the result is a version in the state folder."""

from __future__ import annotations

from typing import Annotated

import typer

from edgeengine.cli.console import Json, State, out, print_json, progress_bar

EXAMPLES = (
    "edgeengine finetune model.edge --data examples.npz",
    "edgeengine finetune model.edge --data examples.npz --steps 500 --batch 32 --lr 0.003 --schedule cosine",
    "edgeengine finetune model.edge --data examples.npz --budget 30s        (or --budget 60J --watts 4)",
    "edgeengine finetune model.edge --data more.npz --resume --store-kb 1024 --rehearse 16",
)


def command(
    bundle: Annotated[str, typer.Argument(help="A bundle that 'edgeengine trainable' made.")],
    data: Annotated[str, typer.Option(help="A .npz: one array per model input, and 'label'.")],
    steps: Annotated[int | None, typer.Option(help="Optimizer steps. [default: 200]")] = None,
    budget: Annotated[str | None, typer.Option(help="In place of --steps: train for 30s, 2min or 60J.")] = None,
    watts: Annotated[float | None, typer.Option(help="What the device draws while it trains; for a budget in J.")] = None,
    batch: Annotated[int, typer.Option(help="Examples per step.")] = 16,
    micro_batch: Annotated[int | None, typer.Option(help="Examples per run; a step sums its runs' gradients.")] = None,
    lr: Annotated[float | None, typer.Option(help="The highest learning rate. [default: the optimizer's usual one]")] = None,
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
    if steps is not None and budget is not None:
        raise UserError("--steps and --budget: give one of them")
    seconds = None if budget is None else _seconds(budget, watts)
    opened = open_bundle(bundle, "trainable")
    disk = VersionStore(state_folder(state), opened)
    tuning = Finetuning(opened, disk, store_bytes=store_kb << 10, resume=resume)
    spec = tuning.trainer.spec
    examples = load_examples(data, tuning.trainer.inputs, spec.label.name, spec.label.dtype)
    with progress_bar() as bar:
        session = tuning.run(
            examples, rehearse=rehearse, margin=margin, holdout=holdout, seed=seed,
            steps=200 if steps is None else steps, seconds=seconds,
            batch=batch, micro_batch=micro_batch, lr=lr, schedule=schedule, warmup=warmup, progress=bar,
        )  # fmt: skip
    result, record, file = session.result, session.record, disk.file(session.record.name)
    if json:
        print_json(
            {
                "steps": result.steps,
                "seconds": result.seconds,
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
        f"{result.steps} steps in {result.seconds:.1f} s: loss {result.loss_first:.4g} -> {result.loss_last:.4g}; "
        f"{spec.metric} on the hold-out {result.metric_before:.4g} -> {result.metric_after:.4g}\n"
        f"version {record.name}{f', which does not serve: {record.cause}' if record.cause else ''}: {file}",
        soft_wrap=True,
        markup=False,
    )


def _seconds(budget: str, watts: float | None) -> float:
    """How long a budget lasts. Raises UserError for one that is none."""
    from edgeengine.errors import UserError

    unit = next((u for u in ("min", "s", "J") if budget.endswith(u)), "")
    try:
        amount = float(budget.removesuffix(unit)) if unit else 0.0
    except ValueError:
        amount = 0.0
    if not 0 < amount < 1e9:
        raise UserError(f"--budget {budget!r}: give a time or an energy, as 30s, 2min or 60J")
    if unit != "J":
        return amount * (60.0 if unit == "min" else 1.0)
    if watts is None or not 0 < watts < 1e6:
        raise UserError(f"--budget {budget}: a budget in joules needs --watts, what the device draws while it trains")
    return amount / watts
