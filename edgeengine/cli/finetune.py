"""`edgeengine finetune`: train a bundle on labelled examples; the result is a version in the state folder."""

from __future__ import annotations

from typing import Annotated

import msgspec
import numpy as np
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
    from edgeengine.training import finetune
    from edgeengine.training.data import load_examples, split
    from edgeengine.training.learner import sample_spec
    from edgeengine.training.methods import GradientSteps
    from edgeengine.training.samples import SampleStore
    from edgeengine.training.store import VersionRecord, VersionStore

    if store_kb < 0 or rehearse < 0 or (rehearse and not store_kb):
        raise UserError(f"--store-kb {store_kb}, --rehearse {rehearse}: rehearsing needs a store of some KB")
    opened = open_bundle(bundle, "trainable")
    disk = VersionStore(state_folder(state), opened)
    method = GradientSteps(opened)
    trainer = method.trainer
    if resume and disk.manifest.state:
        method.restore({n: a for n, a in disk.read(disk.manifest.state).items() if n != "owed"})
    label = trainer.spec.label
    examples = load_examples(data, trainer.inputs, label.name, label.dtype)
    samples = SampleStore(sample_spec(opened, half=True), store_kb << 10) if store_kb else None
    if samples is not None and disk.manifest.samples:
        samples.restore(disk.read(disk.manifest.samples))
    kept = samples.examples(samples.held_back()) if samples is not None and len(samples) else None
    scores = [trainer.evaluate(kept.inputs, kept.label).metric] if kept is not None and len(kept) else []
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
            rehearse=(lambda rng: samples.examples(samples.draw(rehearse, rng))) if rehearse and samples is not None else None,
            progress=bar,
        )
    if kept is not None and scores:
        scores.append(trainer.evaluate(kept.inputs, kept.label).metric)
    sign = 1.0 if trainer.spec.metric == "accuracy" else -1.0  # of a loss, less is better
    drops = [sign * (a - b) for a, b in ((result.metric_before, result.metric_after), tuple(scores or (0.0, 0.0)))]
    serves = max(drops) <= margin
    if samples is not None:
        for part, aside in zip(split(examples, holdout, np.random.default_rng(seed)), (False, True), strict=True):
            samples.add(part.inputs, part.label, held_back=aside)
    method.steps = trainer.state.step
    version = disk.put(trainer.version())
    record = VersionRecord(version, trainer.state.step, cause="" if serves else f"worse by {max(drops):.4g}, margin {margin:g}")
    others = tuple(v for v in disk.manifest.versions if v.name != version)
    changes: dict[str, object] = {"serving": version, "fallback": disk.manifest.serving} if serves else {}
    if samples is not None:
        changes["samples"] = disk.put(samples.tensors(), "samples")
    written = disk.put(method.tensors() | {"owed": np.array(0.0)}, "state")
    disk.commit(msgspec.structs.replace(disk.manifest, versions=(*others, record), state=written, **changes))
    document = {
        "steps": result.steps,
        "loss_first": result.loss_first,
        "loss_last": result.loss_last,
        "metric": trainer.spec.metric,
        "metric_before": result.metric_before,
        "metric_after": result.metric_after,
        "kept_before": scores[0] if scores else None,
        "kept_after": scores[1] if scores else None,
        "serves": serves,
        "version": version,
        "file": str(disk.file(version)),
    }
    if json:
        print_json(document)
        return
    out.print(
        f"{result.steps} steps: loss {result.loss_first:.4g} -> {result.loss_last:.4g}; "
        f"{trainer.spec.metric} on the hold-out {result.metric_before:.4g} -> {result.metric_after:.4g}\n"
        f"version {version}{'' if serves else f', which does not serve: {record.cause}'}: {disk.file(version)}",
        soft_wrap=True,
        markup=False,
    )
