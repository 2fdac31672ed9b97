"""What `edgeengine simulate` does with --seeds, --sweep and --find: many simulations, one answer."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec

from edgeengine.cli.console import note, print_json, print_rows, print_table, progress_bar
from edgeengine.errors import PlanInfeasible, UserError
from edgeengine.reporting import write_file
from edgeengine.spec import Plan
from edgeengine.sweeps import Question, find, parse_axis, points, run_points
from edgeengine.sweeps.frontier import frontier_html, worst_miss_rate
from edgeengine.sweeps.point import Answer
from edgeengine.workload import Workload


@dataclass(frozen=True)
class Planner:
    """Plans by what is known without measuring again: a plan made before serves every setting of its workload here; a described
    device is planned anew for each.
    """

    here: Plan | None
    state: Path

    def __call__(self, workload: Workload, device: str | None) -> tuple[Workload, Plan]:
        from edgeengine.cli.described import on_device

        if device is None and self.here is not None:
            return workload, msgspec.structs.replace(self.here, workload=workload.sha256)
        known = on_device(workload, device, self.state)
        return known.workload, known.prepared.plan


@dataclass(frozen=True)
class Many:
    """How to go about it. `kept`: a file that an interrupted sweep continues from; `plot`: an HTML file."""

    sweep: Sequence[str]
    find: str | None
    workers: int
    backend: str
    cluster: str | None
    kept: str | None
    plot: str | None


def simulate_many(question: Question, how: Many, json: bool) -> None:
    """Raises UserError for keys that do not exist or options that do not go together, PlanInfeasible where nothing can run."""
    if how.find is not None and how.sweep:
        raise UserError("simulate: --find searches one key; give it or --sweep, not both")
    if how.find is not None:
        _find(question, how.find, json)
    elif how.sweep:
        _sweep(question, how, json)
    else:
        (answer,) = run_points(question, [{}])
        if "reason" in answer:
            raise PlanInfeasible(str(answer["reason"]))
        document = _about(question) | {"tasks": answer["tasks"]} | ({"score": answer["score"]} if "score" in answer else {})
        if json:
            print_json(document)
        else:
            title = (
                f"simulated {question.seconds:g} s, {question.seeds} seeds, policy {question.policy} (miss rate: 95 % interval)"
            )
            print_rows(title, answer["tasks"])  # type: ignore[arg-type]
            if "score" in answer:
                strict, as_coded = answer["score"].values()  # type: ignore[attr-defined]
                note(f"XRBench score {strict:.2f}, as coded {as_coded:.2f} (means over the seeds)")


def _about(question: Question) -> dict[str, object]:
    keys = ("device", "policy", "times", "seconds", "seed", "seeds", "max_miss")
    return {"schema": 1} | {k: getattr(question, k) for k in keys}


def _sweep(question: Question, how: Many, json: bool) -> None:
    axes = [parse_axis(text, question.workload) for text in how.sweep]
    wanted = points(axes)
    question = replace(question, devices=_identity([question.device, *(p.get("device") for p in wanted)]))
    with progress_bar() as bar:
        answers = run_points(
            question, wanted, workers=how.workers, backend=how.backend, cluster=how.cluster,
            kept=Path(how.kept) if how.kept is not None else None,
            progress=lambda share: bar(f"simulating {len(wanted)} points", share),
        )  # fmt: skip
    if how.plot is not None:
        write_file(Path(how.plot), frontier_html(Path(question.workload.path).name, axes, answers))
        note(f"drawn: {how.plot}")
    if json:
        print_json(_about(question) | {"sweep": {a.key: a.values for a in axes}, "points": answers})
        return
    keys = [a.key for a in axes]
    lines = [[*a["point"].values(), "yes" if a["feasible"] else "no", *_worst(a)] for a in answers]  # type: ignore[attr-defined]
    columns = [*keys, "feasible", "worst task", "missed", "p99 ms"]
    print_table(f"{len(wanted)} points, {question.seeds} x {question.seconds:g} s each", columns, lines, numeric=columns[-2:])


def _identity(devices: Sequence[object]) -> str:
    """Of the profiles of described devices: what they say now."""
    from edgeengine.devices import load_profile

    profiles = [load_profile(str(name)) for name in dict.fromkeys(devices) if name is not None]
    return hashlib.sha256(msgspec.json.encode(profiles, order="deterministic")).hexdigest() if profiles else ""


def _worst(answer: Answer) -> list[object]:
    rows: list[dict[str, Any]] = answer["tasks"]  # type: ignore[assignment]
    if not rows:
        return [answer.get("reason"), None, None]
    row = max(rows, key=lambda r: float(r["miss_rate"]))
    return [row["task"], f"{worst_miss_rate(answer):.2%} ({row['miss_low']:.2%} to {row['miss_high']:.2%})", row["p99_ms"]]


def _find(question: Question, text: str, json: bool) -> None:
    axis = parse_axis(text, question.workload)
    if axis.numeric and len(axis.values) < 2:
        raise UserError(f"simulate: --find {text}: give two ends, such as {axis.key}=0.5,8")
    found = find(question, axis, note)
    if json:
        print_json(_about(question) | {"find": found})
    if found.value is None:
        tried = f"from {axis.values[0]} to {axis.values[-1]}" if axis.numeric else f"among {', '.join(map(str, axis.values))}"
        raise PlanInfeasible(f"no {axis.key} {tried} meets the deadlines; --sweep {text} shows by how much each misses")
    if json:
        return
    value = f"{found.value:.4g}" if isinstance(found.value, float) else found.value
    assert found.confirmed is not None
    print_rows(
        f"{axis.key} = {value} meets the deadlines; with {question.seeds} fresh seeds (miss rate: 95 % interval)",
        found.confirmed["tasks"],  # type: ignore[arg-type]
    )
    if not found.confirmed["feasible"]:
        note("with the fresh seeds it is no longer feasible: it stands at the edge; give more --seeds or --seconds")
