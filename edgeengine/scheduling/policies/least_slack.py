"""Band's least_slack_time (Jeong et al., Band, MobiSys 2022): slack = deadline - now - shortest expected finish, least first.

A job whose shortest expected finish lies past its deadline is dropped (SLO violation); one whose first processor is busy is left.
"""

from __future__ import annotations

from edgeengine.events import AnyAction, Drop, Start
from edgeengine.scheduling.dropping import CANNOT_FINISH, DropRule, by_release, sift
from edgeengine.scheduling.expected_finish import expected_finish, waits_ns
from edgeengine.scheduling.job import UNREACHABLE_NS, Job
from edgeengine.scheduling.view import View


class LeastSlack:
    name = "least-slack"

    def __init__(self, drop: DropRule = "never"):
        self.drop = drop

    def decide(self, view: View, now: int) -> list[AnyAction]:
        actions, ready = sift(view, now, self.drop)
        busy, waits = view.busy_mask, waits_ns(view, now)
        slack = {j: _deadline(j) - now - expected_finish(j, waits)[0] for j in ready}
        for job in sorted(by_release(ready), key=slack.__getitem__):
            finish, move = expected_finish(job, waits)
            if move is None:
                continue
            if now + finish > _deadline(job):
                actions.append(Drop(job.task.name, job.index, CANNOT_FINISH))
            elif view.can_start(move.processor, now, busy):
                busy |= move.processor.mask
                waits[move.processor.index] += move.p50_ns
                actions.append(Start(job.task.name, job.index, move.subgraph, move.processor.name))
        return actions


def _deadline(job: Job) -> int:
    """A training step has none that counts: a late one is still a step."""
    return UNREACHABLE_NS if job.deadline_ns is None or job.task.train else job.deadline_ns
