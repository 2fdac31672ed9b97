"""Chains of subgraphs end to end: what the mapper compares its last candidates by, never a sum of parts."""

from __future__ import annotations

import time
from collections.abc import Sequence

from edgeengine.devices.providers import Provider
from edgeengine.devices.providers.base import Tensors
from edgeengine.devices.threads import run_pinned
from edgeengine.profiling.candidate import Candidate
from edgeengine.spec import Latency

MIN_ROUNDS, MAX_ROUNDS = 8, 60
SLOW_NS = 20_000_000

Chain = Sequence[Candidate]


def measure_chains(chains: Sequence[Chain], inputs: Tensors, providers: dict[str, Provider], *, budget_s: float) -> list[Latency]:
    """Latency of each chain from model inputs to outputs, interleaved, one uncounted run each before the counted one.

    A chain that stays on one processor runs on a thread pinned there, as its worker would; one that changes processors hands
    over to such a thread at each change, and pays for it.
    """
    executables = [[providers[c.processor.provider].load(c.bundle, c.step, c.processor) for c in chain] for chain in chains]
    samples: list[list[int]] = [[] for _ in chains]
    end = time.monotonic() + budget_s
    for done in range(MAX_ROUNDS):
        if done >= MIN_ROUNDS and time.monotonic() > end:
            break
        for i, chain in enumerate(chains):
            _sample(chain, executables[i], inputs, samples[i])
    return [Latency.of(s) for s in samples]


def _sample(chain: Chain, executables: list, inputs: Tensors, samples: list[int]) -> None:  # type: ignore[type-arg]
    def whole_run() -> int:
        tensors = dict(inputs)
        begun = time.perf_counter_ns()
        for position, candidate in enumerate(chain):
            if position and candidate.processor != chain[position - 1].processor:
                run_pinned(candidate.processor, lambda e=executables[position]: tensors.update(e.run(tensors)))  # type: ignore[misc]
            else:
                tensors.update(executables[position].run(tensors))
        return time.perf_counter_ns() - begun

    def body() -> None:
        whole_run()
        samples.append(whole_run())

    run_pinned(chain[0].processor, body)


def measure_steps(
    chains: Sequence[Chain], inputs: Tensors, providers: dict[str, Provider], *, budget_s: float, min_rounds: int = MIN_ROUNDS
) -> list[list[Latency]]:
    """The latency of each subgraph of each chain as it runs within its chain: caches as the one before it leaves them.

    Chains in turn, one uncounted run each before the counted one, as `measure_chains` does, but for chains that take so long
    that what ran before them matters little; each stays on its processor.
    """
    executables = [[providers[c.processor.provider].load(c.bundle, c.step, c.processor) for c in chain] for chain in chains]
    samples: list[list[list[int]]] = [[[] for _ in chain] for chain in chains]
    clock = time.perf_counter_ns

    def body(index: int) -> None:
        slow = sum(steps[-1] for steps in samples[index] if steps) > SLOW_NS
        for counted in (True,) if slow else (False, True):
            tensors = dict(inputs)
            for position, executable in enumerate(executables[index]):
                begun = clock()
                tensors.update(executable.run(tensors))
                if counted:
                    samples[index][position].append(clock() - begun)

    end = time.monotonic() + budget_s
    for done in range(MAX_ROUNDS):
        if done >= min_rounds and time.monotonic() > end:
            break
        for i, chain in enumerate(chains):
            run_pinned(chain[0].processor, lambda i=i: body(i))  # type: ignore[misc]
    return [[Latency.of(s) for s in chain] for chain in samples]
