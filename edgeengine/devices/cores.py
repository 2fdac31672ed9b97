"""Kinds of cores: on an asymmetric processor (big.LITTLE) what was measured on one says nothing about the other."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

SYSTEM = Path("/sys/devices/system/cpu")
ALIKE = 0.9  # of the fastest of its kind: favoured cores of one kind clock a few percent higher


def kinds_of(cores: Sequence[int], system: Path = SYSTEM) -> list[tuple[int, ...]]:
    """`cores` by kind, the fastest first; one kind where the system tells nothing or they are all alike.

    By Linux's `cpu_capacity` (1024 for the fastest core), else by `cpufreq/cpuinfo_max_freq` (kHz): kernel documentation,
    ABI/testing/sysfs-devices-system-cpu.
    """
    for figure in ("cpu_capacity", "cpufreq/cpuinfo_max_freq"):
        speed = {core: _number(system / f"cpu{core}" / figure) for core in cores}
        if all(speed.values()):
            break
    else:
        return [tuple(cores)]
    kinds: list[list[int]] = []
    for core in sorted(cores, key=lambda c: (-speed[c], c)):
        if kinds and speed[core] >= ALIKE * speed[kinds[-1][0]]:
            kinds[-1].append(core)
        else:
            kinds.append([core])
    return [tuple(sorted(kind)) for kind in kinds]


def _number(file: Path) -> int:
    """0 where it cannot be read."""
    try:
        return int(file.read_text())
    except (OSError, ValueError):
        return 0
