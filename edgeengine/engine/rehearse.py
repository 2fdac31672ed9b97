"""At the period, in service: the workload runs for some seconds on the live engine itself, and what it costs there is kept.

Tight-loop figures do not hold in service: caches are cold, cores have slept, the other cores use the memory too (a MatMul every
30 ms takes 1.5-2 times its back-to-back time; onnxruntime#16135, #17711). A rehearsal belongs to the profile: it ends before a
live run begins.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import msgspec

from edgeengine.bundle import Bundle
from edgeengine.engine.engine import Engine
from edgeengine.engine.overheads import arounds_of, overheads_of
from edgeengine.errors import UserError
from edgeengine.events import AnyAction, Drop, Finished, LogLine, Start
from edgeengine.io import Source
from edgeengine.profiling import equivalent, timestamp
from edgeengine.scheduling import View
from edgeengine.scheduling.job import Move
from edgeengine.scheduling.policies.edf import urgency
from edgeengine.spec import Latency, Plan, ProfileRow, Step, TaskPlan
from edgeengine.workload import Task, Workload

ENOUGH = 20  # samples from which an overhead seen in service replaces that of the empty engine


TURNS = 4  # runs of a subgraph on each of its processors before it settles on the planned one


class TakeTurns:
    """Earliest deadline first. Each subgraph first takes turns on its processors, so that all get measured; then it runs as it
    will in service, on the first free one in the plan's order: where a model stays, its weights stay in the caches.

    Late jobs are dropped, and all that waits once `stop_ns` is over: an overloaded workload must not rehearse its backlog.
    """

    name = "rehearsal"

    def __init__(self, stop_ns: int, turns: int | None = TURNS) -> None:
        self._stop_ns, self._turns = stop_ns, turns
        self._seen: Counter[tuple[str, str, str]] = Counter()

    def decide(self, view: View, now: int) -> list[AnyAction]:
        actions: list[AnyAction] = []
        busy = view.busy_mask
        for job in sorted(view.ready, key=urgency):
            if now > self._stop_ns or (job.deadline_ns is not None and now > job.deadline_ns):
                actions.append(Drop(job.task.name, job.index, "rehearsal over" if now > self._stop_ns else "too late"))
                continue
            free = [m for m in view.moves(job) if m.processor.available and not m.processor.mask & busy]
            if free:
                move = min(free, key=partial(self._turn, job.task.name))
                busy |= move.processor.mask
                self._seen[job.task.name, move.subgraph, move.processor.name] += 1
                actions.append(Start(job.task.name, job.index, move.subgraph, move.processor.name))
        return actions

    def _turn(self, task: str, move: Move) -> int:
        seen = self._seen[task, move.subgraph, move.processor.name]
        return seen if self._turns is None else min(seen, self._turns)


@dataclass(frozen=True)
class Rehearsal:
    """`steps`: latency by (task, subgraph, processor). `around`: by task, what a worker spends beside the run."""

    steps: dict[tuple[str, str, str], Latency]
    around: dict[str, Latency]
    overheads: dict[str, Latency]


def rehearse(
    workload: Workload,
    plan: Plan,
    bundles: Mapping[str, Bundle],
    sources: dict[str, Source],
    seconds: float,
    turns: int | None = TURNS,
) -> Rehearsal:
    """Run the tasks that release jobs for `seconds`, `turns` (None: all) runs in turn on the processors. Empty where none does.

    Raises UserError when a task fails in it: it would fail in service.
    """
    policy = TakeTurns(round(seconds * 1e9), turns)
    with Engine(
        workload, plan, policy=policy, seconds=seconds, bundles=dict(bundles), sources=sources, keep_jobs=True, keep_log=True
    ) as engine:
        engine.wait()
    failed = next((j for j in engine.jobs if j.outcome == "failed"), None)
    if failed is not None:
        raise UserError(f"task {failed.task.name!r} fails: {failed.cause}")
    return Rehearsal(
        steps={key: Latency.of(values) for key, values in _durations(engine.log).items()},
        around={task: Latency.of(values) for task, values in arounds_of(engine.log).items()},
        overheads={name: Latency.of(v) for name, v in overheads_of(engine.log).items() if len(v) >= ENOUGH},
    )


def _durations(log: list[LogLine]) -> dict[tuple[str, str, str], list[int]]:
    """Run times by (task, subgraph, processor); the first of each, on cold memory, is left out where there are others."""
    found: dict[tuple[str, str, str], list[int]] = {}
    for event in (line.event for line in log):
        if isinstance(event, Finished):
            found.setdefault((event.task, event.subgraph, event.processor), []).append(event.duration_ns)
    return {key: values[1:] or values for key, values in found.items()}


def in_service(task: Task, workload: Workload) -> str:
    """The condition of a rehearsed row: "period:<ms>" of the task, or of the parent it follows; else "in service"."""
    while task.period_ns is None and task.after is not None:
        task = workload.task(task.after)
    return f"period:{task.period_ns / 1e6:g}" if task.period_ns is not None else "in service"


def rehearsed_rows(rehearsal: Rehearsal, workload: Workload, plan: Plan, back_to_back: Sequence[ProfileRow]) -> list[ProfileRow]:
    """Profile rows of a rehearsal; first run, session, memory and shapes are those measured back to back."""
    bundle = {t.task: t.bundle for t in plan.tasks}
    known = {(r.bundle, r.subgraph, r.processor): r for r in back_to_back}
    return [
        msgspec.structs.replace(
            known[bundle[task], subgraph, processor],
            condition=in_service(workload.task(task), workload),
            latency=latency,
            measured_at=timestamp(),
            half_width=None,
            ended="budget",
        )
        for (task, subgraph, processor), latency in rehearsal.steps.items()
    ]


def rehearsed_plan(plan: Plan, rehearsal: Rehearsal, machine: Mapping[str, Latency]) -> Plan:
    """The plan with the latencies and overheads that hold in service; `machine`: the empty engine's, for where it has few.

    Samples of equivalent processors (core 0, core 1) are pooled: a rare task has few, and what differs between these is noise. A
    step with too few is taken as back to back, slowed down as its subgraph was on the processor that it mostly ran on.
    """
    kind = {p.name: i for i, group in enumerate(equivalent(plan.processors)) for p in group}
    samples: dict[tuple[str, str, int], list[Latency]] = {}
    for (task, subgraph, processor), latency in rehearsal.steps.items():
        samples.setdefault((task, subgraph, kind[processor]), []).append(latency)
    pooled = {key: Latency.pooled(parts) for key, parts in samples.items()}
    tasks = []
    for t in plan.tasks:
        steps = tuple(msgspec.structs.replace(s, latency=_in_service(t, s, kind, pooled)) for s in t.steps)
        tasks.append(msgspec.structs.replace(t, steps=steps, around=rehearsal.around.get(t.task)))
    return msgspec.structs.replace(plan, tasks=tuple(tasks), overheads={**machine, **rehearsal.overheads})


def _in_service(task: TaskPlan, step: Step, kind: dict[str, int], pooled: dict[tuple[str, str, int], Latency]) -> Latency:
    """The step's latency as rehearsed, else scaled; as it is where its subgraph was never rehearsed."""
    own = pooled.get((task.task, step.subgraph, kind[step.processor]))
    peers = [s for s in task.steps if s.subgraph == step.subgraph and (task.task, s.subgraph, kind[s.processor]) in pooled]
    if not peers:
        return step.latency
    most = max(peers, key=lambda s: pooled[task.task, s.subgraph, kind[s.processor]].n)
    seen = pooled[task.task, most.subgraph, kind[most.processor]]
    if own is not None and (own.n >= ENOUGH or kind[most.processor] == kind[step.processor]):
        return own
    return step.latency.scaled(seen.p50_ns / max(most.latency.p50_ns, 1))
