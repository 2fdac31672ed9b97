"""`edgeengine simulate`: the same scheduler on a virtual clock."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from edgeengine.cli.console import Json, State, note, print_json, print_rows, progress_bar

if TYPE_CHECKING:
    from edgeengine.engine.prepare import Prepared
    from edgeengine.scheduling import Job
    from edgeengine.workload import Workload

SEEDS = 20  # where latencies are predicted: each seed is another device that the predictions allow

EXAMPLES = (
    "edgeengine simulate workload.toml --seconds 60",
    "edgeengine simulate phone.toml --device qualcomm/snapdragon-8-gen-3 --policy fifo --json",
    "edgeengine simulate disb:A --policy price              (or xr:vr_gaming, band:sample: published workloads)",
    "edgeengine simulate w.toml --seeds 20                  (miss rates with their 95 % intervals)",
    "edgeengine simulate w.toml --sweep rate=0.5:3:11 --sweep policy=edf,fifo --workers 2 --plot frontier.html",
    "edgeengine simulate w.toml --find rate=0.5,8 --seeds 5  (the highest rate that meets the deadlines)",
    "edgeengine simulate w.toml --find 'device=*'            (the weakest described device that does)",
)


def command(
    workload: Annotated[str, typer.Argument(help="The workload TOML, or a published one: xr:…, disb:…, band:…")],
    device: Annotated[str | None, typer.Option(help="A described device instead of this machine.")] = None,
    plan: Annotated[str | None, typer.Option(help="A plan made before.")] = None,
    policy: Annotated[str, typer.Option(help="Scheduling policy: edf, price, fifo, or a published one.")] = "edf",
    seconds: Annotated[float, typer.Option(help="Release jobs for this long.")] = 10.0,
    seed: Annotated[int, typer.Option(help="Of execution times and of children with a probability.")] = 0,
    times: Annotated[str, typer.Option(help="Execution times: sampled, median or worst (p99).")] = "sampled",
    output: Annotated[str | None, typer.Option("-o", "--output", help="A folder for events, plan, jobs, result.")] = None,
    jobs: Annotated[str | None, typer.Option(help="One line per job, as CSV.")] = None,
    seeds: Annotated[
        int | None, typer.Option(help="Simulate with this many seeds, from --seed on; 1, or 20 where latencies are predicted.")
    ] = None,
    sweep: Annotated[list[str] | None, typer.Option(help="KEY=V1,V2,… or KEY=FROM:TO:COUNT; repeat to cross keys.")] = None,
    find: Annotated[
        str | None, typer.Option(help="KEY=LOW,HIGH, KEY=NAME,NAME,… or device=PATTERN: the best that is feasible.")
    ] = None,
    max_miss: Annotated[float, typer.Option(help="Feasible: no task misses more than this share.")] = 0.0,
    workers: Annotated[int, typer.Option(help="Processes for --sweep.")] = 1,
    backend: Annotated[str, typer.Option(help="Where the workers of --sweep are: local or dask.")] = "local",
    cluster: Annotated[str | None, typer.Option(help="Address of a Dask scheduler.")] = None,
    kept: Annotated[str | None, typer.Option(help="Keep each answer of --sweep in this file; go on from it.")] = None,
    plot: Annotated[str | None, typer.Option(help="Draw the sweep into this HTML file.")] = None,
    state: State = None,
    json: Json = False,
) -> None:
    """Would these tasks meet their deadlines? Simulated from the profile of this machine, of a described device, or from stated
    latencies.
    """
    from edgeengine.cli.described import on_device
    from edgeengine.cli.sweep import Many, Planner, simulate_many
    from edgeengine.errors import UserError
    from edgeengine.scheduling import make_policy
    from edgeengine.simulation import make_execution_times
    from edgeengine.state import state_folder
    from edgeengine.sweeps import Question
    from edgeengine.workload import load_workload
    from edgeengine.workload.published import XR

    make_policy(policy)  # an unknown one is said before anything is measured
    make_execution_times(times, seed)
    if not 0 < seconds < 1e7:
        raise UserError(f"simulate: --seconds must be above 0 and below 10,000,000, not {seconds:g}")
    if not (seeds is None or 1 <= seeds <= 10_000) or not 1 <= workers <= 1000 or not 0 <= max_miss < 1:
        raise UserError("simulate: --seeds from 1 to 10,000, --workers from 1 to 1,000, --max-miss at least 0 and below 1")
    if not sweep and (plot is not None or kept is not None or cluster is not None or backend != "local" or workers > 1):
        raise UserError("simulate: --plot, --kept, --workers, --backend and --cluster are for --sweep; give one")
    if device is not None and plan is not None:
        raise UserError("simulate: --plan says on which device; leave out --device, or let a plan be made for it without --plan")
    one_run = output is not None or jobs is not None
    if ((seeds or 1) > 1 or sweep or find is not None) and one_run:
        raise UserError("simulate: -o and --jobs are for one run; with --seeds, --sweep or --find use --json")
    tasks = load_workload(workload)
    varied = device or next((text for text in [*(sweep or ()), find or ""] if text.startswith("device=")), None)
    described = _is_described(tasks, varied, plan)
    predicted = described and varied is not None and (tasks.path.startswith(XR) or any(t.model for t in tasks.tasks))
    count = seeds or (SEEDS if predicted and times == "sampled" and not one_run else 1)
    if count > 1 or sweep or find is not None:
        here = None if described else _known(tasks, plan, state, False).plan
        planner = Planner(here, state_folder(state))
        question = Question(tasks, planner, device, policy, times, seconds, seed, count, max_miss)
        simulate_many(question, Many(sweep or (), find, workers, backend, cluster, kept, plot), json)
    elif described:
        known = on_device(tasks, device, state_folder(state))
        _once(known.workload, known.prepared, policy, times, seconds, seed, output, jobs, json)
    else:
        _once(tasks, _known(tasks, plan, state, output is not None), policy, times, seconds, seed, output, jobs, json)


def _once(
    tasks: Workload, known: Prepared, policy: str, times: str, seconds: float, seed: int,
    output: str | None, jobs: str | None, json: bool,
) -> None:  # fmt: skip
    """One run: its files, and its table or document. No job is kept: memory does not grow with `seconds`."""
    from edgeengine.planning.objectives import XrScores
    from edgeengine.reporting import Tally, run_document, with_basis, writing_jobs, writing_run
    from edgeengine.scheduling import make_policy
    from edgeengine.simulation import device_of, make_execution_times, stream
    from edgeengine.workload.published import XR

    plan, counted = device_of(known.plan, times, seed), Tally(tasks)
    scores = XrScores(seconds * 1e3) if tasks.path.startswith(XR) else None
    takers: list[Callable[[Job], object]] = [counted.add, *([scores.add] if scores is not None else [])]

    def ended(job: Job) -> None:
        for take in takers:
            take(job)

    with ExitStack() as files:
        folder = files.enter_context(writing_run(Path(output))) if output is not None else None
        if folder is not None:
            takers.append(folder.end)
        if jobs is not None:
            takers.append(files.enter_context(writing_jobs(Path(jobs))).add)
        done = stream(
            tasks, plan, make_policy(policy), make_execution_times(times, seed), stop_ns=round(seconds * 1e9), seed=seed,
            ended=ended, record=folder.step if folder is not None else None,
        )  # fmt: skip
        document = run_document(
            with_basis(counted.rows(done.released), plan), mode="simulated", policy=policy, seconds=seconds, seed=seed,
            times=times, device=plan.device,
        )  # fmt: skip
        if scores is not None:
            document["score"] = scores.values
        if folder is not None:
            folder.conclude(document, plan, known.rows, known.machine)
    if json:
        print_json(document)
    else:
        title = f"simulated {seconds:g} s, policy {policy}, {plan.device}"
        print_rows(title, document["tasks"], counted.causes)  # type: ignore[arg-type]
        if scores is not None:
            note(f"XRBench score {scores.values['strict']:.2f}, as coded {scores.values['as_coded']:.2f}")


def _is_described(tasks: Workload, device: str | None, plan: str | None) -> bool:
    """True if latencies come from a description, not from measuring here."""
    return plan is None and (device is not None or not any(t.model for t in tasks.tasks))


def _known(tasks: Workload, plan: str | None, state: str | None, with_rows: bool) -> Prepared:
    """The plan given, or that of this machine, measured now if need be; the rows behind it if asked for."""
    from edgeengine.cli.resolve import check_plan, machine_used, measured_plan, open_or_build, rows_used
    from edgeengine.engine.prepare import Prepared
    from edgeengine.planning import load_plan
    from edgeengine.profiling import ProfileStore
    from edgeengine.state import state_folder

    if plan is None:
        folder = state_folder(state)
        with progress_bar() as bar:
            return measured_plan(tasks, open_or_build(tasks, folder, {}, bar), folder, {}, bar)
    chosen = check_plan(load_plan(plan), tasks)
    if not with_rows:
        return Prepared(chosen, [], [])
    store = ProfileStore(state_folder(state) / "profile.sqlite")
    return Prepared(chosen, rows_used(chosen, store), machine_used(chosen, store))
