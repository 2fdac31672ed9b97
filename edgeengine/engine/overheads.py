"""What the engine itself costs on this machine, measured by running it on subgraphs that do nothing.

Machine-wide rows, which plans carry and simulations add:

- timer: nominal release to the event in the scheduler;
- release: one more job released at the same instant (the timer works through them before an idle worker gets going);
- handoff: event to start on an idle worker;
- next: end of a subgraph to the start of the next on the same worker;
- around: start to end of a subgraph, its run left out (plans have it by task).
"""

from __future__ import annotations

import numpy as np

from edgeengine.bundle import Bundle
from edgeengine.devices.providers import Executable
from edgeengine.devices.providers.base import Tensors
from edgeengine.engine.engine import Engine
from edgeengine.events import Finished, LogLine, Released, Start, Started
from edgeengine.planning import plan_from_latencies
from edgeengine.profiling import timestamp
from edgeengine.spec import Latency, MachineRow, Placement, Processor, Step
from edgeengine.workload import parse_workload

# Sparse releases, so that workers and the timer really sleep in between. Every second instant releases three jobs ("release"),
# the others one ("handoff"); the child measures "next".
WORKLOAD = """
[[task]]
name = "tick"
period_ms = 17
latency_ms = {{ {processors} }}
[[task]]
name = "after tick"
after = "tick"
latency_ms = {{ {processors} }}
[[task]]
name = "tock"
period_ms = 34
latency_ms = {{ {processors} }}
[[task]]
name = "tack"
period_ms = 34
latency_ms = {{ {processors} }}
"""


class _NoopProvider:
    """Runs nothing at once: what remains is the engine."""

    def __init__(self, name: str):
        self.name = name

    def discover(self, cores: tuple[int, ...]) -> list[Processor]:
        return []

    def load(self, bundle: Bundle | None, step: Step, processor: Processor) -> Executable:
        return _Noop()

    def close(self) -> None:
        pass


class _Noop:
    """Leaves nothing but cold caches behind, as a model does: the engine's own code is not in them when it is needed next."""

    def __init__(self) -> None:
        self._memory = np.ones(1 << 20, np.uint8)
        self.placement: Placement | None = None

    def run(self, feeds: Tensors) -> Tensors:
        self._memory.sum()
        return {}


def measure_overheads(processors: tuple[Processor, ...], device: str, *, seconds: float = 2.0) -> list[MachineRow]:
    """Run the empty workload on the single-core processors for `seconds`; one row per overhead."""
    singles = tuple(p for p in processors if p.usable and p.threads == 1)[:2]
    names = ", ".join(f'"{p.name}" = 0.05' for p in singles)
    workload = parse_workload(WORKLOAD.format(processors=names).encode())
    plan = plan_from_latencies(workload, singles)
    providers = {p.provider: _NoopProvider(p.provider) for p in singles}
    with Engine(workload, plan, policy="fifo", seconds=seconds, providers=dict(providers), keep_log=True) as engine:
        engine.wait()
        log = engine.log
    when = timestamp()
    return [MachineRow(device, name, Latency.of(values), when) for name, values in overheads_of(log).items() if values]


def overheads_of(log: list[LogLine]) -> dict[str, list[int]]:
    """Overheads in nanoseconds, by name, from the event log of a live run."""
    found: dict[str, list[int]] = {"timer": [], "release": [], "handoff": [], "next": [], "around": []}
    released_ns: int | None = None  # event time of the release before, while more of its instant follow
    decided: dict[tuple[str, int], tuple[str, int]] = {}  # job -> how and when its coming start was decided
    for line in log:
        event = line.event
        if isinstance(event, Released) and event.at_ns > event.release_ns:  # from the timer, not a training step's own
            if released_ns is not None:
                found["release"].append(event.at_ns - released_ns)
            else:
                found["timer"].append(event.at_ns - event.release_ns)
            released_ns = event.at_ns if event.more else None
        elif isinstance(event, Started):
            how, when = decided.pop((event.task, event.index))
            found[how].append(event.at_ns - when)
        for action in line.actions:
            if isinstance(action, Start):
                own = isinstance(event, Finished) and event.processor == action.processor
                decided[action.task, action.index] = ("next" if own else "handoff", event.at_ns)
    for values in arounds_of(log).values():
        found["around"] += values
    return found


def arounds_of(log: list[LogLine]) -> dict[str, list[int]]:
    """By task: from start to end of each subgraph without its run, in nanoseconds (gathering inputs, handing on outputs)."""
    found: dict[str, list[int]] = {}
    started: dict[str, int] = {}
    for event in (line.event for line in log):
        if isinstance(event, Started):
            started[event.processor] = event.at_ns
        elif isinstance(event, Finished):
            found.setdefault(event.task, []).append(event.at_ns - started[event.processor] - event.duration_ns)
    return found
