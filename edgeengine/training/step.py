"""A training step before its commit: a chain of micro-steps, each one run without side effects.

Every micro-batch runs the parts of the gradient graph in order, plain tensors between them; the last part adds its
gradients to the mean. Then the optimizer makes new tensors from the old, and the commit puts them in place of these, all
at once. So a step may be given up at any time before: what it made is forgotten, and nothing has changed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from edgeengine.errors import InternalError
from edgeengine.training.graphs import Gradients, StepGraphs, StepResult
from edgeengine.training.state import Arrays, TrainingState


@dataclass(frozen=True)
class MicroStep:
    """One run, not preempted once begun: call it once, in its turn. `name` is a part's of the bundle, or `optimizer`."""

    name: str
    examples: int
    run: Callable[[], None]

    def __call__(self) -> None:
        self.run()


@dataclass(frozen=True)
class MicroBatch:
    """What the gradient graph is fed, of how many examples, and what they count for in the mean (see Gradients)."""

    feeds: Arrays
    examples: int
    weight: float


class PendingStep:
    """`micro_steps`, to be called in order, on any threads but one at a time; then `commit`, or `abandon` at any time before.

    `put` replaces the state `before`.
    """

    def __init__(
        self,
        graphs: StepGraphs,
        before: TrainingState,
        batches: Sequence[MicroBatch],
        lr: float,
        put: Callable[[TrainingState, TrainingState], None],
    ):
        self._graphs, self._before, self._lr, self._put = graphs, before, lr, put
        self._tensors: Arrays = {}
        self._total: Gradients | None = None
        self._made: tuple[TrainingState, StepResult] | None = None
        runs: list[tuple[str, int, Callable[[], None]]] = []
        for batch in batches:
            for part, name in enumerate(graphs.names):
                runs.append((name, batch.examples, lambda p=part, b=batch: self._gradient(p, b)))  # type: ignore[misc]
        runs.append(("optimizer", sum(b.examples for b in batches), self._optimize))
        self.micro_steps = tuple(
            MicroStep(name, examples, lambda i=i, run=run: self._turn(i, run))  # type: ignore[misc]
            for i, (name, examples, run) in enumerate(runs)
        )
        self._count, self._done, self._over = len(runs), 0, False

    def commit(self) -> StepResult:
        """Put the new state in place of the old; runs nothing.

        Raises InternalError where micro-steps are missing, the step is over, or the state is no more the one it began with.
        """
        if self._made is None or self._over:
            over = " of a step that is over" if self._over else ""
            raise InternalError(f"no commit after {self._done} of {self._count} micro-steps{over}")
        after, result = self._made
        before = self._before
        self.abandon()
        self._put(before, after)
        return result

    def abandon(self) -> None:
        """Forget what was made, and let go of it."""
        self._over = True
        self.micro_steps = ()
        self._tensors, self._total, self._made = {}, None, None

    def _turn(self, index: int, run: Callable[[], None]) -> None:
        if self._over or index != self._done:
            raise InternalError(f"micro-step {index} out of turn: {self._done} of {self._count} were made")
        run()
        self._done += 1

    def _gradient(self, part: int, batch: MicroBatch) -> None:
        self._tensors = self._graphs.run(part, self._tensors if part else batch.feeds)
        if part == len(self._graphs.names) - 1:
            found, self._tensors = self._graphs.gradients(self._tensors, batch.weight), {}
            self._total = found if self._total is None else self._total + found

    def _optimize(self) -> None:
        """Raises StepRefused for a loss or gradient that is not finite."""
        assert self._total is not None
        self._made = self._graphs.update(self._before, self._total, self._lr)
