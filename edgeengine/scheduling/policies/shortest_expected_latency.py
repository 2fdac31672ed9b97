"""Band's shortest_expected_latency (Jeong et al., Band, MobiSys 2022): of the waiting jobs the one whose shortest expected finish
is largest is put into the queue of the first processor on its path; then again, with the queues as they are now.

Arrival times do not count. A queued subgraph stays where it was put (Band's device queues).
"""

from __future__ import annotations

from edgeengine.events import AnyAction, Start
from edgeengine.scheduling.dropping import DropRule, by_release, sift
from edgeengine.scheduling.expected_finish import expected_finish, waits_ns
from edgeengine.scheduling.job import Job, Move
from edgeengine.scheduling.view import View


class ShortestExpectedLatency:
    name = "shortest-expected-latency"

    def __init__(self, drop: DropRule = "never"):
        self.drop = drop
        self._queued: dict[Job, Move] = {}  # in the order they were put

    def decide(self, view: View, now: int) -> list[AnyAction]:
        drops, ready = sift(view, now, self.drop)
        alive = set(ready)
        self._queued = {j: m for j, m in self._queued.items() if j in alive and m.start == j.position and m.processor.available}
        waits = waits_ns(view, now)
        for move in self._queued.values():
            waits[move.processor.index] += move.p50_ns
        waiting = [j for j in by_release(ready) if j not in self._queued]
        while waiting:
            found = [(*expected_finish(j, waits), j) for j in waiting]
            _, first, job = max(found, key=lambda f: f[0])  # the first of equals
            waiting.remove(job)
            if first is not None:
                self._queued[job] = first
                waits[first.processor.index] += first.p50_ns
        return drops + self._start(view, now)

    def _start(self, view: View, now: int) -> list[AnyAction]:
        actions: list[AnyAction] = []
        busy = view.busy_mask
        for job, move in list(self._queued.items()):
            if view.can_start(move.processor, now, busy):
                busy |= move.processor.mask
                del self._queued[job]
                actions.append(Start(job.task.name, job.index, move.subgraph, move.processor.name))
        return actions
