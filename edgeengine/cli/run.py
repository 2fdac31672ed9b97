"""`edgeengine run`: run a workload live."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from edgeengine.cli.console import Json, State, note, out, print_json, print_rows, progress_bar
from edgeengine.cli.options import OPTION_HELP, parse_options

if TYPE_CHECKING:
    from collections.abc import Callable

    from edgeengine.bundle import Bundle
    from edgeengine.engine import Engine, JobResult
    from edgeengine.engine.learning import Learned
    from edgeengine.events import LogLine
    from edgeengine.io import Source
    from edgeengine.scheduling import Job
    from edgeengine.spec import Plan
    from edgeengine.workload import Workload

EXAMPLES = (
    "edgeengine run workload.toml --seconds 10",
    "edgeengine run workload.toml --plan plan.json --jobs jobs.csv --json",
)


def command(
    workload: Annotated[str, typer.Argument(help="The workload TOML.")],
    plan: Annotated[str | None, typer.Option(help="A plan made before.")] = None,
    seconds: Annotated[float, typer.Option(help="Release jobs for this long.")] = 10.0,
    policy: Annotated[str, typer.Option(help="Scheduling policy: edf, price, fifo, or a published one.")] = "edf",
    option: Annotated[list[str] | None, typer.Option(help=OPTION_HELP)] = None,
    seed: Annotated[int, typer.Option(help="Of children with a probability.")] = 0,
    strict: Annotated[bool, typer.Option("--strict", help="Refuse a plan of which nodes fall back to another provider.")] = False,
    output: Annotated[str | None, typer.Option("-o", "--output", help="A folder for events, plan, jobs, result.")] = None,
    jobs: Annotated[str | None, typer.Option(help="One line per job, as CSV.")] = None,
    state: State = None,
    json: Json = False,
) -> None:
    """Run the tasks under deadlines on this machine, measuring and planning first if there is no plan yet."""
    from edgeengine.cli.resolve import (
        check_plan,
        machine_used,
        measured_plan,
        open_or_build,
        require_sources,
        rows_used,
    )  # fmt: skip
    from edgeengine.errors import UserError
    from edgeengine.planning import load_plan
    from edgeengine.profiling import ProfileStore
    from edgeengine.reporting import jobs_csv, run_document, tally, write_file, write_run_folder
    from edgeengine.scheduling import make_policy
    from edgeengine.state import state_folder
    from edgeengine.workload import load_workload

    make_policy(policy)  # an unknown one is said before anything is measured
    if not 0 < seconds < 1e7:
        raise UserError(f"run: --seconds must be above 0 and below 10,000,000, not {seconds:g}")
    if plan is not None and option:
        raise UserError(f"run: {plan} holds the options it was made with; give --option to 'edgeengine plan'")
    tasks = load_workload(workload)
    if not any(t.model for t in tasks.tasks):
        raise UserError(f"{workload}: its tasks state latency_ms and have no model: use 'edgeengine simulate'")
    require_sources(tasks, {})
    folder = state_folder(state)
    with progress_bar() as bar:
        bundles = open_or_build(tasks, folder, {}, bar)
        if plan is not None:
            chosen = check_plan(load_plan(plan), tasks)
            store = ProfileStore(folder / "profile.sqlite")
            rows, machine = rows_used(chosen, store), machine_used(chosen, store)
        else:
            prepared = measured_plan(tasks, bundles, folder, {}, bar, options=parse_options(option))
            chosen, rows, machine = prepared.plan, prepared.rows, prepared.machine
    live = run_live(tasks, chosen, bundles, {}, policy, seconds, seed, strict=strict, state=folder / "learned")
    counted = tally(tasks, live.jobs)
    document = run_document(
        counted.rows(live.released), mode="live", policy=policy, seconds=seconds, seed=seed, device=chosen.device,
        interrupted=live.interrupted, abandoned=live.abandoned, learned=live.learned,
    )  # fmt: skip
    if jobs is not None:
        write_file(Path(jobs), jobs_csv(live.jobs))
    if output is not None:
        write_run_folder(Path(output), document=document, plan=chosen, log=live.log, jobs=live.jobs, rows=rows, machine=machine)
    if json:
        print_json(document)
    else:
        how = "live, interrupted" if live.interrupted else "live"
        if live.abandoned:
            how += f", {', '.join(live.abandoned)} hung"
        print_rows(f"{how}, {seconds:g} s, policy {policy}, {chosen.device}", document["tasks"], counted.causes)  # type: ignore[arg-type]
        for learned in live.learned:
            out.print(learned_line(learned), soft_wrap=True, markup=False)
    if live.interrupted:
        sys.exit(130)


def learned_line(learned: Learned) -> str:
    """What a training task has done: "learn: 240 steps, loss 0.91 -> 0.12; 2 versions, guard 0.903 -> 0.996 (user), …"."""
    loss = "" if learned.loss_first is None else f", loss {learned.loss_first:.3g} -> {learned.loss_last:.3g}"
    scores = ""
    if learned.versions:
        last = learned.versions[-1]
        by_domain = (f"{last.before.get(d, 0.0):.3g} -> {score:.3g} ({d})" for d, score in last.after.items())
        scores = ", guard " + ", ".join(by_domain) if last.after else ""
    refused = f", {learned.refused} refused" if learned.refused else ""
    return f"{learned.task}: {learned.steps} steps{refused}{loss}; {len(learned.versions)} versions{scores}"


@dataclass
class Live:
    """What a live run left. `results`: those of the watched task."""

    jobs: list[Job] = field(default_factory=list)
    log: list[LogLine] = field(default_factory=list)
    results: list[JobResult] = field(default_factory=list)
    released: dict[str, int] = field(default_factory=dict)
    interrupted: bool = False
    abandoned: tuple[str, ...] = ()  # processors whose runs never returned
    learned: tuple[Learned, ...] = ()


def run_live(
    tasks: Workload,
    plan: Plan,
    bundles: dict[str, Bundle | None],
    sources: dict[str, Source],
    policy: str,
    seconds: float,
    seed: int = 0,
    watch: str | None = None,
    strict: bool = False,
    state: Path | None = None,
    meanwhile: Callable[[Engine], None] | None = None,
) -> Live:
    """Run until the last job ended or Ctrl-C; the workers are joined either way. `watch`: a task whose results are kept.

    `state`: a folder to learn in, for tasks that train. `meanwhile` is called once it runs. `strict` raises DeviceError where a
    node of a planned subgraph would run on another provider than planned.
    """
    from edgeengine.devices.providers import load_providers
    from edgeengine.engine import Engine

    live, engine, stream = Live(), None, None
    try:
        engine = Engine(
            tasks, plan, policy=policy, seconds=seconds, seed=seed, sources=sources, keep_jobs=True, keep_log=True,
            bundles={name: b for name, b in bundles.items() if b is not None}, providers=load_providers(strict=strict),
            state=state,
        )  # fmt: skip
        live.jobs, live.log = engine.jobs, engine.log
        stream = engine.results(watch) if watch is not None else None
        note(f"running for {seconds:g} s …")
        with engine:
            if meanwhile is not None:
                meanwhile(engine)
            engine.wait()
    except KeyboardInterrupt:
        live.interrupted = True
    if engine is not None:  # what the engine added for itself is in the log alone
        named = {t.name for t in tasks.tasks}
        live.jobs = [j for j in live.jobs if j.task.name in named]
        live.abandoned, live.learned = engine.abandoned, engine.learned
        live.released = {name: n for name, n in engine.released.items() if name in named}
    if stream is not None:
        live.results += stream
    return live
