"""Band's fixed_worker (Jeong et al., Band, MobiSys 2022): every model whole on its configured processor, each processor first in,
first out.

`worker`: processor by task; a task that is not in it (or whose processor is lost) takes the one that is fastest for it.
"""

from __future__ import annotations

from collections.abc import Mapping

from edgeengine.events import AnyAction, Start
from edgeengine.scheduling.dropping import DropRule, by_release, sift
from edgeengine.scheduling.static_map import balanced_map
from edgeengine.scheduling.view import View
from edgeengine.scheduling.whole_model import go_on, whole_moves


class FixedWorker:
    name = "fixed-worker"

    def __init__(self, worker: Mapping[str, str] | None = None, drop: DropRule = "never"):
        self.worker, self.drop = worker or {}, drop

    def decide(self, view: View, now: int) -> list[AnyAction]:
        drops, ready = sift(view, now, self.drop)
        actions, waiting, busy = go_on(view, ready, now)
        for job in by_release(waiting):
            moves = whole_moves(view, job)
            own = [(ns, m) for ns, m in moves if m.processor.name == self.worker.get(job.task.name)]
            if not moves:
                continue
            _, move = min(own or moves, key=lambda found: found[0])
            if view.can_start(move.processor, now, busy):
                busy |= move.processor.mask
                actions.append(Start(job.task.name, job.index, move.subgraph, move.processor.name))
        return drops + actions


class FixedBalanced(FixedWorker):
    """The same with the map that balances the processors' loads, the best a careful developer would configure."""

    name = "fixed-balanced"

    def decide(self, view: View, now: int) -> list[AnyAction]:
        if not self.worker:
            self.worker = balanced_map(view)
        return super().decide(view, now)
