"""Routes: the ways of a job through its remaining subgraphs that the price policy tries, best first.

First the processors that can run all of it, by cost; then paths over several: the shortest, the shortest that avoid one
processor, and the splits over two at one border. Costs are latencies, or latencies times the processors' prices.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import pairwise

from edgeengine.scheduling.job import UNREACHABLE_NS, Move, ProcessorState, Task

MOST_ROUTES = 16


@dataclass(frozen=True, slots=True)
class Piece:
    """A stretch of subgraphs on one processor; `first` is the move that begins it, `grain_ns` its longest subgraph."""

    processor: ProcessorState
    start: int
    stop: int
    length_ns: int
    grain_ns: int
    first: Move
    first_ns: int


Route = tuple[Piece, ...]
Length = Callable[[Move], int]
Cost = Callable[[ProcessorState, int], float]


class Routes:
    """Routes of a task from each position, kept until its estimates change."""

    def __init__(self, length: Length, cost: Cost):
        self._length, self._cost = length, cost
        self._found: dict[tuple[int, int], tuple[int, list[Route]]] = {}
        self._pieces: dict[tuple[int, int, int, int], tuple[int, Piece | None]] = {}

    def of(self, task: Task, position: int) -> list[Route]:
        key = (task.index, position)
        known = self._found.get(key)
        if known is None or known[0] != task.estimates:
            known = self._found[key] = (task.estimates, self._search(task, position))
        return known[1]

    def shortest_ns(self, task: Task) -> int:
        """Of a whole job, waiting not counted."""
        return min((sum(p.length_ns for p in route) for route in self.of(task, 0)), default=UNREACHABLE_NS)

    def piece(self, task: Task, processor: ProcessorState, start: int, stop: int) -> Piece | None:
        """The shortest way from `start` to `stop` on this processor alone."""
        key = (task.index, processor.index, start, stop)
        known = self._pieces.get(key)
        if known is None or known[0] != task.estimates:
            path = self._path(task, start, stop, lambda m: self._length(m) if m.processor is processor else None)
            known = self._pieces[key] = (task.estimates, _pieces(path, self._length)[0] if path else None)
        return known[1]

    def _search(self, task: Task, position: int) -> list[Route]:
        processors = list(dict.fromkeys(m.processor for moves in task.moves[position:] for m in moves if m.processor.available))
        wholes = [(p,) for q in processors if (p := self.piece(task, q, position, task.segments)) is not None]
        wholes.sort(key=lambda r: (self._cost(r[0].processor, r[0].length_ns), r[0].length_ns))
        paths = [self._path(task, position, task.segments, self._length)]
        if len(processors) > 2:
            for avoided in processors:
                paths.append(self._path(task, position, task.segments, lambda m, a=avoided: self._unless(m, a)))  # type: ignore[misc]
        mixed = [_pieces(path, self._length) for path in paths if path]
        found = [*wholes, *(r for r in mixed if len(r) > 1), *self._splits(task, position, wholes)]
        return list(dict.fromkeys(found))[:MOST_ROUTES]

    def _unless(self, move: Move, avoided: ProcessorState) -> int | None:
        return None if move.processor is avoided else self._length(move)

    def _splits(self, task: Task, position: int, wholes: list[tuple[Piece]]) -> list[Route]:
        found: list[Route] = []
        for (a,) in wholes:
            for (b,) in wholes:
                for border in range(task.segments - 1, position, -1):
                    if a is not b:
                        first = self.piece(task, a.processor, position, border)
                        second = self.piece(task, b.processor, border, task.segments)
                        if first is not None and second is not None:
                            found.append((first, _behind(second, first)))
        return found

    def _path(self, task: Task, start: int, stop: int, length: Callable[[Move], int | None]) -> list[Move]:
        """The shortest path; empty if there is none. Ties stay on the processor that comes first."""
        best = [UNREACHABLE_NS] * (stop + 1)
        came: list[Move | None] = [None] * (stop + 1)
        best[start] = 0
        for at in range(start, stop):
            if best[at] >= UNREACHABLE_NS:
                continue
            for move in task.moves[at]:
                ns = length(move) if move.stop <= stop and move.processor.available else None
                if ns is not None and best[at] + ns < best[move.stop]:
                    best[move.stop], came[move.stop] = best[at] + ns, move
        path: list[Move] = []
        at = stop
        while at > start and came[at] is not None:
            last = came[at]
            assert last is not None
            path.append(last)
            at = last.start
        return path[::-1] if at == start else []


def _pieces(path: list[Move], length: Length) -> Route:
    """Neighbouring moves on the same processor together."""
    borders = [0, *(i + 1 for i, (a, b) in enumerate(pairwise(path)) if a.processor is not b.processor), len(path)]
    runs = [path[a:b] for a, b in pairwise(borders)]
    pieces = [
        Piece(r[0].processor, r[0].start, r[-1].stop, sum(map(length, r)), max(map(length, r)), r[0], length(r[0])) for r in runs
    ]
    return tuple(_behind(piece, before) for piece, before in zip(pieces, [None, *pieces], strict=False))


def _behind(piece: Piece, before: Piece | None) -> Piece:
    """The piece with what it costs to read what the piece before it leaves elsewhere."""
    ns = piece.first.switch_ns.get(before.processor.name, 0) if before is not None else 0
    return replace(piece, length_ns=piece.length_ns + ns, first_ns=piece.first_ns + ns) if ns else piece
