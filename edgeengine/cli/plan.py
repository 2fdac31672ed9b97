"""`edgeengine plan`: decide by measurement which subgraphs of a workload run where."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from edgeengine.cli.console import Json, State, note, print_json, print_table, progress_bar
from edgeengine.cli.options import OPTION_HELP, parse_options

EXAMPLES = (
    "edgeengine plan workload.toml -o plan.json",
    "edgeengine plan workload.toml --admit          (which tasks are guaranteed, and what would make the others fit)",
    "edgeengine plan workload.toml --device raspberrypi/pi4   (predicted)",
)


def command(
    workload: Annotated[str, typer.Argument(help="The workload TOML.")],
    output: Annotated[str | None, typer.Option("-o", "--output", help="The plan to write, PLAN.json.")] = None,
    device: Annotated[str | None, typer.Option(help="A described device instead of this machine.")] = None,
    processor: Annotated[list[str] | None, typer.Option(help="Only this processor; repeat for more.")] = None,
    option: Annotated[list[str] | None, typer.Option(help=OPTION_HELP)] = None,
    emulated_speed: Annotated[
        str | None, typer.Option(help="'measured': plan on emulated processors (named by --processor) as fast as they are here.")
    ] = None,
    admit: Annotated[bool, typer.Option("--admit", help="Test which tasks can be guaranteed; those keep to one route.")] = False,
    power_cap: Annotated[float | None, typer.Option(help="Never draw more than this many watts; needs power figures.")] = None,
    advise: Annotated[bool, typer.Option("--advise", help="Work out, by simulation, what --policy price goes by.")] = False,
    state: State = None,
    json: Json = False,
) -> None:
    """Measure what is not measured yet, search the mapping, print and write the plan.

    With --admit, exit code 3 where a task of high criticality is refused; the plan is written all the same.
    """
    import msgspec

    from edgeengine.cli.described import on_device
    from edgeengine.cli.resolve import measured_plan, open_or_build
    from edgeengine.errors import PlanInfeasible, UserError
    from edgeengine.planning import admission, placing, power, what_if
    from edgeengine.reporting import write_file
    from edgeengine.state import state_folder
    from edgeengine.workload import load_workload

    if emulated_speed not in (None, "measured"):
        raise UserError(f"plan: --emulated-speed {emulated_speed!r} is not known; the only choice is 'measured'")
    if power_cap is not None and not power_cap > 0:
        raise UserError(f"plan: --power-cap {power_cap:g}: give watts, above 0")
    tasks = load_workload(workload)
    if device is not None or not any(t.model for t in tasks.tasks):
        if option or processor or emulated_speed:
            raise UserError("plan: --option, --processor and --emulated-speed are for this machine, not for a described device")
        known = on_device(tasks, device, state_folder(state))
        tasks, plan = known.workload, known.prepared.plan
    else:
        folder = state_folder(state)
        with progress_bar() as bar:
            bundles, slow = open_or_build(tasks, folder, {}, bar), emulated_speed == "measured"
            plan = measured_plan(
                tasks, bundles, folder, {}, bar, processor, emulated_speed=slow, options=parse_options(option)
            ).plan
    if power_cap is not None:
        plan = power.capped(plan, power_cap)
    if admit:
        plan = admission.admit(tasks, plan)
    if advise:
        plan = msgspec.structs.replace(plan, guidance=what_if.advise(tasks, plan))
    if output is not None:
        write_file(Path(output), msgspec.json.format(msgspec.json.encode(plan), indent=1))
    if json:
        print_json(plan)
    else:
        print_plan(plan)
    if output is not None:
        note(f"written to {output}")
    high = {t.name for t in tasks.tasks if t.criticality == "high"}
    refused = [f"{t.task}: {t.reason}" for t in plan.tasks if admit and t.task in high and t.verdict == placing.REFUSED]
    if refused:
        raise PlanInfeasible(f"{workload}: {'; '.join(refused)}")


def print_plan(plan) -> None:  # type: ignore[no-untyped-def]
    """A line per task: its chain, where it may run, what that costs."""
    from edgeengine.planning.plan import NO_ADMISSION

    rows = []
    for t in plan.tasks:
        chain = " -> ".join(dict.fromkeys(s.subgraph for s in t.steps))
        where = ", ".join(dict.fromkeys(s.processor for s in t.steps))
        alone = None if t.measured_ns is None else t.measured_ns / 1e6
        memory = None if t.resident_bytes is None else t.resident_bytes / 1e6
        rows.append([t.task, chain, where, t.basis, alone, _chain_ms(t, "p50_ns"), _chain_ms(t, "p99_ns"), memory, t.verdict])
    print_table(
        f"plan for {plan.device} (ms: back to back alone; in service, at its period beside the others)",
        ["task", "chain", "on", "basis", "alone", "in service p50", "p99", "MB", "verdict"],
        rows,
        numeric=["alone", "in service p50", "p99", "MB"],
    )
    for t in plan.tasks:
        if t.reason != NO_ADMISSION:
            note(f"{t.task}: {t.reason}")


def _chain_ms(task, which: str) -> float:  # type: ignore[no-untyped-def]
    best: dict[int, int] = {}
    for s in task.steps:
        best[s.start] = min(best.get(s.start, 1 << 62), getattr(s.latency, which))
    return sum(best.values()) / 1e6
