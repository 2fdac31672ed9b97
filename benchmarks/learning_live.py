"""`python -m benchmarks.learning_live [--stretches 24] [--seconds 8] [--learners 2]`: is learning felt by those who are served?

The demo's workload, live, in one run of stretches with and without learning in turn; learners have work without end (gradient
steps with rehearsal). Printed: misses of high and normal tasks, the p99 of each with learning over that without and the
95 % interval of this ratio, beside what it may be (1.05, and one wait for the longest micro-step's p99); the share of the
slack that committed steps used, live and in a simulation of the same plan.

One learner is a chain of micro-steps: it never holds more than one core. With two, the second trains a twin of the model,
so that there is work for every core.
"""

from __future__ import annotations

import argparse
import gc
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import onnx

from benchmarks.stretches import MISSES, Stretch, micro_steps, service, slack_used
from coach.demo import MODELS, demo
from edgeengine.cli.resolve import measured_plan, open_or_build
from edgeengine.engine import Engine
from edgeengine.engine.learning import settings_of
from edgeengine.scheduling import make_policy
from edgeengine.simulation import Sampled, simulate
from edgeengine.workload import load_workload

SETTLE_S = 0.3  # after a switch: what was released before it, and the step under way, end in this time
LEARN = 'learn = { method = "gradients", new = 4, old = 28, micro_batch = 8, steps_per_sample = 9e5 }'
SERVED = ("high", "normal")


def workload_file(folder: Path, seconds: float, learners: int):  # type: ignore[no-untyped-def]
    """The demo, its learner one of gradients that never ends, and a second one that trains a twin."""
    show = demo(folder, seconds)
    text = show.workload.read_text(encoding="utf-8")
    head = next(line for line in text.splitlines() if line.startswith("learn = "))
    text = text.replace(head, LEARN)
    if learners == 2:
        text += f'\n[[task]]\nname = "twin"\nkind = "train"\nmodel = "{twin(folder)}"\n{LEARN}\n'
    show.workload.write_text(text, encoding="utf-8")
    return show


def twin(folder: Path) -> Path:
    """The exercise model with one weight moved: the same work, another bundle."""
    model = onnx.load(str(MODELS / "exercise.onnx"))
    tensor = next(t for t in model.graph.initializer if t.data_type == onnx.TensorProto.FLOAT and len(t.dims) > 1)
    values = onnx.numpy_helper.to_array(tensor) * np.float32(1.0001)
    tensor.CopyFrom(onnx.numpy_helper.from_array(values, tensor.name))
    file = folder / "twin.onnx"
    onnx.save(model, str(file))
    return file


@contextmanager
def switchable(engine: Engine, names: set[str]) -> Iterator[dict[str, bool]]:
    """{"learning": whether `names` and what publishes for them have work}. The engine has no such switch of its own."""
    runtime, switch = engine._runtime, {"learning": False}
    had = runtime.has_work
    runtime.has_work = lambda task: had(task) and (switch["learning"] or task.partition("/")[0] not in names)
    yield switch


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.learning_live", description=__doc__)
    parser.add_argument("--stretches", type=int, default=24)
    parser.add_argument("--seconds", type=float, default=8.0, help="of each stretch")
    parser.add_argument("--learners", type=int, choices=(1, 2), default=2)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="edgeengine-") as made:
        measure(Path(made), given.stretches, given.seconds, given.learners)


def measure(folder: Path, count: int, each_s: float, learners: int) -> None:
    seconds = count * each_s
    show = workload_file(folder, seconds, learners)
    tasks = load_workload(show.workload)
    names = {t.name for t in tasks.tasks if t.is_training}
    bundles = open_or_build(tasks, folder, show.sources, _say)
    plan = measured_plan(tasks, bundles, folder, show.sources, _say, fresh=True).plan
    opened = {name: b for name, b in bundles.items() if b is not None}
    with Engine(
        tasks, plan, seconds=seconds, bundles=opened, sources=show.sources, state=folder / "learned",
        learning=settings_of(tasks), keep_jobs=True, keep_log=True,
    ) as engine, switchable(engine, names) as switch:  # fmt: skip
        known, mine = show.known(), show.lessons
        for name in sorted(names):
            engine.learner(name).learn({"window": known.values}, known.label, domain="known", known=True)
            engine.learner(name).learn({"window": mine.values}, mine.label)
        stretches = []
        for i in range(count):
            switch["learning"] = i % 2 == 1
            engine._runtime.wake_training()
            gc.freeze()  # the kept jobs and log grow: a collection over all of them would hold every thread up to 0.2 s
            begin_s = max(i * each_s, engine._runtime.now() / 1e9) + SETTLE_S
            end_s = (i + 1) * each_s
            time.sleep(max(end_s - engine._runtime.now() / 1e9, 0))
            if begin_s < end_s:
                stretches.append(Stretch(round(begin_s * 1e9), round(end_s * 1e9), switch["learning"]))
        switch["learning"] = False
        engine.wait()
        jobs, log = engine.jobs, engine.log
        steps = {name: engine.learner(name).method.steps for name in sorted(names)}
    cores = {p.name: p.threads for p in plan.processors}
    running = [*names, *(f"{n}/publish" for n in names)]
    durations = micro_steps(log, running)
    longest_key = max(durations, key=lambda k: float(np.quantile(durations[k], 0.99)))
    longest = float(np.quantile(durations[longest_key], 0.99))
    on, off = (sum(s.learning is which for s in stretches) for which in (True, False))
    print(f"{on} stretches of {each_s:g} s with {learners} learning, {off} without; steps made: {steps}")
    print(f"longest micro-step: {'/'.join(longest_key)}, p99 {longest:.2f} ms")
    for key, times in sorted(durations.items()):
        p50, p99 = np.quantile(times, (0.5, 0.99))
        print(f"  {'/'.join(key)}: p50 {p50:.2f}, p99 {p99:.2f}, at most {times.max():.2f} ms")
    print(f"{'task':12}{'missed off':>11}{'on':>6}{'p99 off':>9}{'on':>9}{'ratio':>8}{'95 %':>16}{'may be':>8}")
    served = [t.name for t in tasks.tasks if t.criticality in SERVED and not t.is_training]
    for name in served:
        found = service(name, jobs, stretches)
        low, high = found.interval()
        print(
            f"{name:12}{found.missed_off:>11}{found.missed_on:>6}{found.p99(False):>9.2f}{found.p99(True):>9.2f}"
            f"{found.ratio():>8.2f}{f'{low:.2f} .. {high:.2f}':>16}{found.limit(longest):>8.2f}"
        )
    missed = Counter((j.task.name, j.outcome, j.cause) for j in jobs if j.task.name in served and j.outcome in MISSES)
    for (task, outcome, cause), times in sorted(missed.items()):
        print(f"  {task} {outcome}{f' ({cause})' if cause else ''}: {times}")
    print(f"slack used by committed steps, live: {slack_used(log, jobs, running, cores, stretches):.1%}")
    done = simulate(tasks, plan, make_policy("edf"), Sampled(0), stop_ns=30 * 10**9, keep_log=True)
    whole = [Stretch(0, 30 * 10**9, True)]
    print(f"slack used by committed steps, simulated: {slack_used(done.log or [], done.jobs, running, cores, whole):.1%}")


def _say(what: str, share: float) -> None:
    print(what, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
