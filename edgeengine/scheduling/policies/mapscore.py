"""DREAM's MapScore (Kim et al., DREAM, ASPLOS 2024, arXiv 2212.03414), written FROM MEMORY of the paper: the formula has not been
checked against it, and DREAM's frame drop, supernet switching and parameter search are not here.

    ToGo    = sum over the layers left of the mean latency over processors
    MapScore(job, p) = ToGo / Slack * (sum over q of latency(q)) / latency(p) + alpha * waited / mean latency + beta * energy

The pair (ready job, idle processor) of highest score goes first. The energy preference (sum over q of energy(q) / energy(p))
needs energies for every processor; without them it is 0.
"""

from __future__ import annotations

from edgeengine.events import AnyAction, Start
from edgeengine.scheduling.dropping import DropRule, sift
from edgeengine.scheduling.job import Job, Move, Task
from edgeengine.scheduling.view import View


class MapScore:
    name = "mapscore"

    def __init__(self, alpha: float = 1.0, beta: float = 1.0, drop: DropRule = "never"):
        self.alpha, self.beta, self.drop = alpha, beta, drop

    def decide(self, view: View, now: int) -> list[AnyAction]:
        actions, ready = sift(view, now, self.drop)
        busy = view.busy_mask
        pairs = [(-self._score(job, m, now), n, job, m) for n, job in enumerate(ready) for m in view.moves(job)]
        started = set()
        for _, _, job, move in sorted(pairs, key=lambda p: p[:2]):
            if job not in started and view.can_start(move.processor, now, busy):
                busy |= move.processor.mask
                started.add(job)
                actions.append(Start(job.task.name, job.index, move.subgraph, move.processor.name))
        return actions

    def _score(self, job: Job, move: Move, now: int) -> float:
        moves = job.task.moves[job.position]
        total = sum(m.p50_ns for m in moves)
        urgency = 0.0
        if job.deadline_ns is not None:
            urgency = _to_go_ns(job.task, job.position) / max(job.deadline_ns - now, 1)
        waited = max(now - job.release_ns, 0) / max(total / len(moves), 1)
        energies = [m.energy_mj for m in moves if m.energy_mj]
        energy = sum(energies) / move.energy_mj if move.energy_mj and len(energies) == len(moves) else 0.0
        return urgency * total / max(move.p50_ns, 1) + self.alpha * waited + self.beta * energy


def _to_go_ns(task: Task, position: int) -> float:
    """Mean latencies of the subgraphs left, along the finest cut."""
    total = 0.0
    while position < task.segments and task.moves[position]:
        stop = min(m.stop for m in task.moves[position])
        finest = [m.p50_ns for m in task.moves[position] if m.stop == stop]
        total += sum(finest) / len(finest)
        position = stop
    return total
