"""Band's round_robin (Jeong et al., Band, MobiSys 2022): each idle processor in turn takes the first queued job that it can run
whole.
"""

from __future__ import annotations

from edgeengine.events import AnyAction, Start
from edgeengine.scheduling.dropping import DropRule, by_release, sift
from edgeengine.scheduling.view import View
from edgeengine.scheduling.whole_model import go_on, whole_moves


class RoundRobin:
    name = "round-robin"

    def __init__(self, drop: DropRule = "never"):
        self.drop = drop

    def decide(self, view: View, now: int) -> list[AnyAction]:
        drops, ready = sift(view, now, self.drop)
        actions, waiting, busy = go_on(view, ready, now)
        queue = by_release(waiting)
        for processor in view.processors:
            if not view.can_start(processor, now, busy):
                continue
            for job in queue:
                move = next((m for _, m in whole_moves(view, job) if m.processor is processor), None)
                if move is not None:
                    busy |= processor.mask
                    queue.remove(job)
                    actions.append(Start(job.task.name, job.index, move.subgraph, processor.name))
                    break
        return drops + actions
