"""Windows of a weakly-hard task in which too few jobs were met."""

from __future__ import annotations

from collections import deque


class Violations:
    """`count`: of all runs of `of` consecutive jobs, those with fewer than `met` met. Jobs may come out of order; the few that
    are ahead of one still missing are kept.
    """

    def __init__(self, firm: tuple[int, int]):
        self._met, of = firm
        self._window: deque[bool] = deque(maxlen=of)
        self._ahead: dict[int, bool] = {}
        self._next = self.count = 0

    def add(self, index: int, met: bool) -> None:
        self._ahead[index] = met
        while self._next in self._ahead:
            self._window.append(self._ahead.pop(self._next))
            self._next += 1
            self.count += len(self._window) == self._window.maxlen and sum(self._window) < self._met
