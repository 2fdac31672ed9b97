"""Which samples stay when there is room for few: slots shared fairly among classes, and within a class among domains."""

from __future__ import annotations

from collections import Counter

import numpy as np

Group = tuple[int, str]  # class, domain


class Reservoir:
    """`capacity` slots. Once they are full, a sample of a group that has fewer than its share takes a slot of the largest
    class, from the largest domain in it; one of the largest group itself takes one of its own with probability size / seen, so
    that what is kept is a uniform draw of all that came.

    (Class-balancing reservoir sampling: Chrysakis, Moens, "Online Continual Learning from Imbalanced Data", ICML 2020; Vitter,
    "Random Sampling with a Reservoir", 1985. Domains are treated within a class as classes are.)
    """

    def __init__(self, capacity: int):
        self.groups: list[Group | None] = [None] * capacity
        self.seen: Counter[Group] = Counter()
        self._free = list(range(capacity - 1, -1, -1))  # the lowest is taken first
        self._slots: dict[Group, list[int]] = {}

    @property
    def filled(self) -> list[int]:
        """Slots that hold a sample, ascending."""
        return [i for i, g in enumerate(self.groups) if g is not None]

    @property
    def sizes(self) -> dict[Group, int]:
        return {g: len(s) for g, s in self._slots.items()}

    def place(self, group: Group, rng: np.random.Generator) -> int | None:
        """The slot that a new sample of `group` shall be written to; None where it is not kept."""
        self.seen[group] += 1
        if self._free:
            return self._take(self._free.pop(), group)
        victims = self._largest(group[0])
        if victims is None:
            return None
        same_size = len(self._slots.get(group, ())) == len(self._slots[victims])
        if victims == group or (victims[0] == group[0] and same_size):
            own = self._slots[group]
            drawn = int(rng.integers(self.seen[group]))
            return own[drawn] if drawn < len(own) else None
        slot = self._slots[victims].pop(int(rng.integers(len(self._slots[victims]))))
        return self._take(slot, group)

    def free(self, slot: int) -> None:
        """The sample in `slot` is deleted."""
        group = self.groups[slot]
        if group is not None:
            self._slots[group].remove(slot)
            self.groups[slot] = None
            self._free.append(slot)

    def restore(self, groups: list[Group | None], seen: dict[Group, int]) -> None:
        """Take over what was kept. Slots are in ascending order afterwards, as they are after `canonical`."""
        self.groups = list(groups)
        self.seen = Counter(seen)
        self.canonical()

    def canonical(self) -> None:
        """Order what has no meaning by slot, so that a store that goes on and one that was read back draw the same."""
        self._free = [i for i in range(len(self.groups) - 1, -1, -1) if self.groups[i] is None]
        self._slots = {}
        for i, group in enumerate(self.groups):
            if group is not None:
                self._slots.setdefault(group, []).append(i)

    def _take(self, slot: int, group: Group) -> int:
        self.groups[slot] = group
        self._slots.setdefault(group, []).append(slot)
        return slot

    def _largest(self, label: int) -> Group | None:
        """The largest domain of the largest class; of equally large classes that of the new sample."""
        totals: Counter[int] = Counter()
        for (one, _), slots in self._slots.items():
            totals[one] += len(slots)
        if not totals:
            return None
        most = max(totals.values())
        chosen = label if totals[label] == most else min(c for c, n in totals.items() if n == most)
        return max((g for g in self._slots if g[0] == chosen), key=lambda g: (len(self._slots[g]), g[1]))
