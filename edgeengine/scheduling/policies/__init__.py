"""Policies by name, one file each. Others come from installed packages through the entry-point group `edgeengine.policies`."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from importlib.metadata import EntryPoint, entry_points

from edgeengine.errors import UserError
from edgeengine.scheduling.policies.edf import Edf
from edgeengine.scheduling.policies.fifo import Fifo
from edgeengine.scheduling.policies.fixed_worker import FixedBalanced, FixedWorker
from edgeengine.scheduling.policies.global_edf import GlobalEdf
from edgeengine.scheduling.policies.heft import Heft, HeftReserved
from edgeengine.scheduling.policies.lalarand import Lalarand
from edgeengine.scheduling.policies.least_slack import LeastSlack
from edgeengine.scheduling.policies.llf import LeastLaxity
from edgeengine.scheduling.policies.mapscore import MapScore
from edgeengine.scheduling.policies.monotonic import DeadlineMonotonic, RateMonotonic
from edgeengine.scheduling.policies.price import Price
from edgeengine.scheduling.policies.round_robin import RoundRobin
from edgeengine.scheduling.policies.shortest_expected_latency import ShortestExpectedLatency
from edgeengine.scheduling.policies.sjf import ShortestJob
from edgeengine.scheduling.policies.xrbench import XrBench
from edgeengine.scheduling.view import Policy

PolicyType = Callable[..., Policy]

# Published policies take `drop`, when they give a waiting job up; by default as their source does.
PUBLISHED: dict[str, PolicyType] = {
    "fixed-worker": FixedWorker, "fixed-balanced": FixedBalanced, "round-robin": RoundRobin,
    "shortest-expected-latency": ShortestExpectedLatency, "heft": Heft, "heft-reserved": HeftReserved,
    "least-slack": LeastSlack, "lalarand": Lalarand, "xrbench": XrBench, "global-edf": GlobalEdf, "rm": RateMonotonic,
    "dm": DeadlineMonotonic, "llf": LeastLaxity, "sjf": ShortestJob, "mapscore": MapScore,
}  # fmt: skip
BUILT_IN: dict[str, PolicyType] = {"edf": Edf, "fifo": Fifo, "price": Price, **PUBLISHED}


@cache
def _installed() -> tuple[EntryPoint, ...]:
    """Looked up once: reading what is installed takes milliseconds, as long as a short simulation."""
    return tuple(entry_points(group="edgeengine.policies"))


def policy_names() -> list[str]:
    return sorted(BUILT_IN) + sorted(e.name for e in _installed())


def make_policy(name: str) -> Policy:
    """A fresh policy. Raises UserError with the known names for an unknown one, or one that two packages claim."""
    found = [e for e in _installed() if e.name == name]
    if len(found) + (name in BUILT_IN) > 1:
        raise UserError(f"policy {name!r} is claimed by more than one package; uninstall all but one")
    if name in BUILT_IN:
        return BUILT_IN[name]()
    if not found:
        raise UserError(f"unknown policy {name!r}; choose one of {', '.join(policy_names())}")
    try:
        made: Policy = found[0].load()()
    except ImportError as e:
        raise UserError(f"policy {name!r} cannot be imported ({e}); install what it needs") from e
    return made
