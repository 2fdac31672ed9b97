"""What a runtime made of a subgraph: which provider took which nodes, what fell back, and why."""

from __future__ import annotations

import msgspec


class Fallback(msgspec.Struct, frozen=True):
    """Nodes that the provider asked for did not take. `reason` is empty where it cannot be known."""

    op: str  # "domain:Op", the default domain left out
    nodes: tuple[str, ...]
    provider: str  # who took them instead
    reason: str = ""


class Placement(msgspec.Struct, frozen=True):
    """Asked against assigned, for one session. `nodes` counts the nodes each provider runs (after the runtime's fusions);
    `copies` the transfers between memories that the runtime inserted. `time_share` sums to 1, None where it was not measured.
    """

    asked: str
    nodes: dict[str, int]
    fallback: tuple[Fallback, ...] = ()
    copies: int = 0
    time_share: dict[str, float] | None = None

    @property
    def whole(self) -> bool:
        """True if nothing fell back."""
        return not self.fallback
