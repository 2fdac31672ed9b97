"""XRBench's dispatcher (Kwon et al., XRBench, MLSys 2023; as coded): for each model in order of name, the first frame waiting
goes to the idle accelerator of least latency, whole and without preemption.

A queued frame whose deadline has passed is dropped.
"""

from __future__ import annotations

from edgeengine.events import AnyAction, Start
from edgeengine.scheduling.dropping import DropRule, sift
from edgeengine.scheduling.job import Job
from edgeengine.scheduling.view import View
from edgeengine.scheduling.whole_model import go_on, whole_moves


class XrBench:
    name = "xrbench"

    def __init__(self, drop: DropRule = "overdue"):
        self.drop = drop

    def decide(self, view: View, now: int) -> list[AnyAction]:
        drops, ready = sift(view, now, self.drop)
        actions, waiting, busy = go_on(view, ready, now)
        heads: dict[str, Job] = {}
        for job in sorted(waiting, key=lambda j: (j.task.name, j.index)):
            heads.setdefault(job.task.name, job)
        for job in heads.values():
            idle = [(ns, m) for ns, m in whole_moves(view, job) if view.can_start(m.processor, now, busy)]
            if idle:
                _, move = min(idle, key=lambda found: found[0])
                busy |= move.processor.mask
                actions.append(Start(job.task.name, job.index, move.subgraph, move.processor.name))
        return drops + actions
