"""LaLaRAND's runtime (Kang et al., LaLaRAND, RTSS 2021): rate monotonic, one priority queue per processor, layer by layer.

Where each layer runs is decided beforehand (a file in the source): here `place`, (task, position) -> processor, else the
processor that runs that subgraph fastest. A subgraph is not preempted and waits for its own processor.
"""

from __future__ import annotations

from collections.abc import Mapping

from edgeengine.events import AnyAction, Start
from edgeengine.scheduling.dropping import DropRule, sift
from edgeengine.scheduling.policies.monotonic import by_period
from edgeengine.scheduling.view import View


class Lalarand:
    name = "lalarand"

    def __init__(self, place: Mapping[tuple[str, int], str] | None = None, drop: DropRule = "never"):
        self.place, self.drop = place or {}, drop

    def decide(self, view: View, now: int) -> list[AnyAction]:
        actions, ready = sift(view, now, self.drop)
        busy = view.busy_mask
        for job in sorted(ready, key=by_period):
            moves = [m for m in view.moves(job) if m.processor.available]
            own = [m for m in moves if m.processor.name == self.place.get((job.task.name, job.position))]
            if not moves:
                continue
            move = min(own or moves, key=lambda m: m.p50_ns + job.task.best_ns[m.stop])
            if view.can_start(move.processor, now, busy):
                busy |= move.processor.mask
                actions.append(Start(job.task.name, job.index, move.subgraph, move.processor.name))
        return actions
