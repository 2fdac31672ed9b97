"""Band's HEFT, plain and with reservation (Jeong et al., Band, MobiSys 2022, after Topcuoglu et al. 2002).

While a processor is idle: the job whose shortest expected finish is largest takes the first processor of its path, or, if that
is busy, lengthens its wait and yields. With reservation a dispatched job's next subgraph counts in the others' waits.
"""

from __future__ import annotations

from edgeengine.events import AnyAction, Start
from edgeengine.scheduling.dropping import DropRule, by_release, sift
from edgeengine.scheduling.expected_finish import expected_finish, waits_ns
from edgeengine.scheduling.job import ENDED, Job, Move
from edgeengine.scheduling.view import View


class Heft:
    name = "heft"
    reserve = False

    def __init__(self, drop: DropRule = "never"):
        self.drop = drop
        self._reserved: dict[Job, Move] = {}

    def decide(self, view: View, now: int) -> list[AnyAction]:
        drops, ready = sift(view, now, self.drop)
        self._reserved = {j: m for j, m in self._reserved.items() if j.state != ENDED}
        actions: list[AnyAction] = []
        busy, waits, waiting = view.busy_mask, waits_ns(view, now), by_release(ready)
        while waiting and busy != view.all_mask:
            found = [(*expected_finish(j, self._with_reserved(waits, j)), j) for j in waiting]
            _, move, job = max(found, key=lambda f: f[0])
            waiting.remove(job)
            if move is None:
                continue
            waits[move.processor.index] += move.p50_ns
            if view.can_start(move.processor, now, busy):
                busy |= move.processor.mask
                actions.append(Start(job.task.name, job.index, move.subgraph, move.processor.name))
                self._reserve_next(job, move, waits)
        return drops + actions

    def _with_reserved(self, waits: list[int], job: Job) -> list[int]:
        if not self._reserved:
            return waits
        more = list(waits)
        for other, move in self._reserved.items():
            if other is not job:
                more[move.processor.index] += move.p50_ns
        return more

    def _reserve_next(self, job: Job, move: Move, waits: list[int]) -> None:
        self._reserved.pop(job, None)
        if self.reserve and move.stop < job.task.segments:
            _, following = expected_finish(job, waits, move.stop)
            if following is not None:
                self._reserved[job] = following


class HeftReserved(Heft):
    name = "heft-reserved"
    reserve = True
