"""`edgeengine demo`: the whole story, on real models and real sensor data."""

from __future__ import annotations

import hashlib
import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import msgspec
import typer

from edgeengine.cli.console import Json, State, note, out, print_json, print_rows, progress_bar

if TYPE_CHECKING:
    from edgeengine.engine.prepare import Prepared
    from edgeengine.spec import Plan
    from edgeengine.workload import Workload

EXAMPLES = (
    "edgeengine demo",
    "edgeengine demo --seconds 30 --policy fifo",
    "edgeengine demo --json",
)


def command(
    seconds: Annotated[float, typer.Option(help="Length of the live run.")] = 10.0,
    policy: Annotated[str, typer.Option(help="Scheduling policy: edf, price, fifo, or a published one.")] = "edf",
    output: Annotated[
        str, typer.Option("-o", "--output", help="Folder for the workload, the profile and both runs.")
    ] = "demo-run",
    fresh: Annotated[bool, typer.Option(help="Measure again instead of using this machine's profile.")] = True,
    state: State = None,
    json: Json = False,
) -> None:
    """Five real models under deadlines on this machine: cut, profiled, planned, run live, and simulated from the profile."""
    from edgeengine.cli.lessons import Lessons
    from edgeengine.cli.resolve import measured_plan, open_or_build
    from edgeengine.cli.run import run_live
    from edgeengine.errors import UserError
    from edgeengine.scheduling import make_policy
    from edgeengine.simulation import Sampled, simulate
    from edgeengine.state import state_folder
    from edgeengine.workload import load_workload

    make_policy(policy)  # an unknown one is said before anything is measured
    if not 1 <= seconds < 1e5:
        raise UserError(f"demo: --seconds must be at least 1, not {seconds}")
    folder = Path(output)
    folder.mkdir(parents=True, exist_ok=True)
    show = _load_demo()(folder, seconds)
    tasks, store = load_workload(show.workload), state_folder(state)
    with progress_bar() as bar:
        bundles = open_or_build(tasks, store, show.sources, bar)
        prepared = measured_plan(tasks, bundles, store, show.sources, bar, fresh=fresh)
    digests = _write_profile(folder, prepared)
    lessons = Lessons(show, bundles[show.learner], folder / "learned", seconds)
    live = run_live(
        tasks, prepared.plan, bundles, show.sources, policy, seconds,
        watch=show.task, state=lessons.folder, meanwhile=lessons.teach,
    )  # fmt: skip
    learned = lessons.result()
    about = {"policy": policy, "seconds": seconds, "device": prepared.plan.device}
    seen = _written(
        folder / "live", tasks, prepared, live, mode="live", interrupted=live.interrupted, learned=live.learned, **about
    )
    done = simulate(tasks, prepared.plan, make_policy(policy), Sampled(0), stop_ns=round(seconds * 1e9), keep_log=True)
    foreseen = _written(folder / "simulated", tasks, prepared, done, mode="simulated", **about)
    recognised = _recognised(show, live.results)
    if json:
        documents = {"live": seen.document, "simulated": foreseen.document, "recognised": recognised, "learned": learned}
        print_json(documents | digests | {"workload": str(show.workload)})
    else:
        _print(folder, show, prepared.plan, seen, foreseen, recognised, learned)
    if live.interrupted:
        sys.exit(130)


class _Ran(NamedTuple):
    """A run as it is told: its JSON document, and what was not met."""

    document: dict[str, Any]
    causes: Counter[tuple[str, str, str]]  # jobs not met by (task, outcome, cause)


def _written(folder: Path, tasks: Workload, prepared: Prepared, run: Any, **about: Any) -> _Ran:
    """The folder of a run, live or simulated (`jobs`, `log`, `released`)."""
    from edgeengine.reporting import run_document, tally, write_run_folder

    counted = tally(tasks, run.jobs)
    document = run_document(counted.rows(run.released), **about)
    write_run_folder(
        folder, document=document, plan=prepared.plan, log=run.log or [], jobs=run.jobs,
        rows=prepared.rows, machine=prepared.machine,
    )  # fmt: skip
    return _Ran(document, counted.causes)


def _print(
    folder: Path, show: Any, plan: Plan, live: _Ran, simulated: _Ran, recognised: list[dict[str, object]], learned: Any
) -> None:  # fmt: skip
    from edgeengine.cli.lessons import print_learned
    from edgeengine.cli.plan import print_plan

    print_plan(plan)
    print_rows(f"live, {live.document['seconds']:g} s, policy {live.document['policy']}", live.document["tasks"], live.causes)
    print_rows("simulated from the profile", simulated.document["tasks"], simulated.causes)
    _print_verdict(live.document["tasks"], simulated.document["tasks"])
    _print_recognised(recognised)
    print_learned(learned)
    note(f"everything is in {folder}/ — try: edgeengine simulate {show.workload} --plan {folder}/plan.json --policy fifo")


def _write_profile(folder: Path, prepared: Prepared) -> dict[str, str]:
    """Profile and plan as files, before the live run; their sha256, which are printed: nothing later can enter them."""
    from edgeengine.profiling import export_json
    from edgeengine.reporting import write_file

    document, digest = export_json(prepared.rows, prepared.machine)
    planned = msgspec.json.format(msgspec.json.encode(prepared.plan), indent=1)
    plan_digest = hashlib.sha256(planned).hexdigest()
    for name, data, hexdigest in (("profile", document, digest), ("plan", planned, plan_digest)):
        write_file(folder / f"{name}.json", data)
        note(f"{name} written to {folder / name}.json, sha256 {hexdigest}")
    return {"profile_sha256": digest, "plan_sha256": plan_digest}


def _load_demo() -> Any:
    """The demo's content comes from an installed app (entry-point group `edgeengine.apps`)."""
    from importlib.metadata import entry_points

    from edgeengine.errors import UserError

    for entry in entry_points(group="edgeengine.apps"):
        if entry.name == "coach":
            return entry.load()
    raise UserError("demo: its content is the app 'coach', which is not installed; in a checkout: pip install ./apps/coach")


def _recognised(show: Any, results: list[Any]) -> list[dict[str, object]]:
    """What the exercise model said of each window, against the label."""
    rows: list[dict[str, object]] = []
    for r in sorted(results, key=lambda r: r.index):
        said = show.labels[int(next(iter(r.outputs.values()))[0].argmax())] if r.outputs else None
        truth = show.truth(r.release_ns)
        rows.append({"time_s": r.release_ns / 1e9, "label": truth, "recognised": said, "right": said == truth})
    return rows


def _print_verdict(live: list[dict[str, Any]], simulated: list[dict[str, Any]]) -> None:
    """The two figures to look for: were the deadlines kept, and how near came the simulation?"""
    live, simulated = ([t for t in rows if t["criticality"] != "train"] for rows in (live, simulated))
    met, released = sum(t["met"] for t in live), sum(t["released"] for t in live)
    off = {
        a["task"]: abs(b["p50_ms"] / a["p50_ms"] - 1) for a, b in zip(live, simulated, strict=True) if a["p50_ms"] and b["p50_ms"]
    }
    worst = max(off, key=off.__getitem__, default=None)
    near = "" if worst is None else f"; the simulated p50 is at most {off[worst]:.0%} off the live one ({worst})"
    out.print(f"live: {met} of {released} jobs met their deadlines{near}")


def _print_recognised(rows: list[dict[str, object]]) -> None:
    right = sum(bool(r["right"]) for r in rows)
    out.print(f"exercises recognised: {right} of {len(rows)} windows of a person the model never saw (what it misses is its own)")
    stretch: list[str] = []
    previous = None
    for r in rows:
        if r["label"] != previous:
            if stretch:
                out.print("  " + " ".join(stretch))
            stretch = [f"{r['label']!s:>5}:"]
            previous = r["label"]
        stretch.append(str(r["recognised"]) if not r["right"] else "ok")
    if stretch:
        out.print("  " + " ".join(stretch))
