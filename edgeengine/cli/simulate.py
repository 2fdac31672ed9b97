"""`edgeengine simulate`: the same scheduler on a virtual clock."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from edgeengine.cli.console import Json, State, print_json, print_rows, progress_bar

if TYPE_CHECKING:
    from edgeengine.spec import Plan
    from edgeengine.workload import Workload

EXAMPLES = (
    "edgeengine simulate workload.toml --seconds 60",
    "edgeengine simulate phone.toml --device qualcomm/snapdragon-8-gen-3 --policy fifo --json",
)


def described_plan(workload: Workload, device: str | None) -> Plan:
    """A plan from stated latencies, on a described device's processors or those that the workload names."""
    from edgeengine.devices import load_profile
    from edgeengine.planning import plan_from_latencies

    return plan_from_latencies(workload, load_profile(device).processors if device is not None else None)


def command(
    workload: Annotated[str, typer.Argument(help="The workload TOML.")],
    device: Annotated[str | None, typer.Option(help="A described device instead of this machine.")] = None,
    plan: Annotated[str | None, typer.Option(help="A plan made before.")] = None,
    policy: Annotated[str, typer.Option(help="Scheduling policy: edf or fifo.")] = "edf",
    seconds: Annotated[float, typer.Option(help="Release jobs for this long.")] = 10.0,
    seed: Annotated[int, typer.Option(help="Of execution times and of children with a probability.")] = 0,
    times: Annotated[str, typer.Option(help="Execution times: sampled, median or worst (p99).")] = "sampled",
    output: Annotated[str | None, typer.Option("-o", "--output", help="A folder for events, plan, jobs, result.")] = None,
    jobs: Annotated[str | None, typer.Option(help="One line per job, as CSV.")] = None,
    state: State = None,
    json: Json = False,
) -> None:
    """Would these tasks meet their deadlines? Simulated from the profile of this machine, or from stated latencies."""
    from edgeengine.cli.resolve import check_plan, machine_used, measured_plan, open_or_build, rows_used
    from edgeengine.errors import UserError
    from edgeengine.planning import load_plan
    from edgeengine.profiling import ProfileStore
    from edgeengine.reporting import jobs_csv, run_document, write_file, write_run_folder
    from edgeengine.scheduling import make_policy
    from edgeengine.simulation import make_execution_times, simulate
    from edgeengine.state import state_folder
    from edgeengine.workload import load_workload

    make_policy(policy)  # an unknown one is said before anything is measured
    make_execution_times(times, seed)
    if not 0 < seconds < 1e7:
        raise UserError(f"simulate: --seconds must be positive, not {seconds}")
    tasks = load_workload(workload)
    rows, machine = [], []
    if plan is not None:
        chosen = check_plan(load_plan(plan), tasks)
        if output is not None:
            store = ProfileStore(state_folder(state) / "profile.sqlite")
            rows, machine = rows_used(chosen, store), machine_used(chosen, store)
    elif device is not None or not any(t.model for t in tasks.tasks):
        chosen = described_plan(tasks, device)
    else:
        folder = state_folder(state)
        with progress_bar() as bar:
            prepared = measured_plan(tasks, open_or_build(tasks, folder, {}, bar), folder, {}, bar)
        chosen, rows, machine = prepared.plan, prepared.rows, prepared.machine
    execution = make_execution_times(times, seed)
    done = simulate(
        tasks, chosen, make_policy(policy), execution, stop_ns=round(seconds * 1e9), seed=seed, keep_log=output is not None
    )
    document = run_document(
        tasks, done.jobs, done.released, mode="simulated", policy=policy, seconds=seconds, seed=seed, times=times,
        device=chosen.device,
    )  # fmt: skip
    if jobs is not None:
        write_file(Path(jobs), jobs_csv(done.jobs))
    if output is not None:
        write_run_folder(
            Path(output), document=document, plan=chosen, log=done.log or [], jobs=done.jobs, rows=rows, machine=machine
        )
    if json:
        print_json(document)
    else:
        print_rows(f"simulated {seconds:g} s, policy {policy}, {chosen.device}", document["tasks"], done.jobs)  # type: ignore[arg-type]
