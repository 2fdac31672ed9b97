"""This machine: its usable cores, its processors, its identity in profiles.

Sized from the affinity mask and the control group's CPU limit, not from the host's core count: in a container the latter
oversubscribes, and pinning outside the mask fails.
"""

from __future__ import annotations

import hashlib
import os
import platform
from collections.abc import Mapping
from pathlib import Path

from edgeengine.devices.providers import load_providers
from edgeengine.spec import Processor

CGROUP = Path("/sys/fs/cgroup")


def usable_cores(cgroup: Path = CGROUP) -> tuple[int, ...]:
    """Core numbers this process may use, at most as many as its CPU quota pays for (at least one)."""
    # macOS and Windows have no mask to ask for.
    cores = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else list(range(os.cpu_count() or 1))
    quota = _cpu_quota(cgroup)
    if quota is not None:
        cores = cores[: max(int(quota), 1)]
    return tuple(cores)


def _cpu_quota(cgroup: Path) -> float | None:
    """CPUs the control group grants, None where unlimited or unreadable. Reads version 2 (cpu.max), then version 1."""
    limits = []
    for folder in _own_groups(cgroup):
        text = _read(folder / "cpu.max")
        if text is not None:
            quota, _, period = text.partition(" ")
            if quota != "max":
                limits.append(int(quota) / int(period or 100_000))
    if limits:
        return min(limits)
    quota_us, period_us = _read(cgroup / "cpu/cpu.cfs_quota_us"), _read(cgroup / "cpu/cpu.cfs_period_us")
    if quota_us and period_us and int(quota_us) > 0:
        return int(quota_us) / int(period_us)
    return None


def _own_groups(cgroup: Path) -> list[Path]:
    """The process's own group first, then its ancestors: the tightest limit usually sits on one of them."""
    own = (_read(Path("/proc/self/cgroup")) or "").splitlines()
    path = next((line[3:] for line in own if line.startswith("0::/")), "/")
    folder = cgroup / path.lstrip("/")
    return [folder, *[p for p in folder.parents if p.is_relative_to(cgroup)]]


def _read(path: Path) -> str | None:
    try:
        return path.read_text().strip()
    except OSError:
        return None


def discover(options: Mapping[str, Mapping[str, str]] | None = None) -> list[Processor]:
    """Every processor every provider offers here, unusable ones with their reason; `options` by processor, see load_providers."""
    cores = usable_cores()
    return [p for provider in load_providers(options=options).values() for p in provider.discover(cores)]


def device_id() -> str:
    """Identity of this machine in profiles: architecture, usable cores, CPU model. The same on machines that measure alike."""
    model = _cpu_model()
    digest = hashlib.sha256(model.encode()).hexdigest()[:8]
    return f"{platform.machine()}-{len(usable_cores())}core-{digest}"


def _cpu_model() -> str:
    """As /proc/cpuinfo names it; on ARM the board (device tree) and the kinds of its cores (implementer and part)."""
    lines = [line.partition(":") for line in (_read(Path("/proc/cpuinfo")) or "").splitlines()]
    figures = [(name.strip(), value.strip()) for name, _, value in lines]
    named = next((value for name, value in figures if name in ("model name", "Model")), "")
    board = (_read(Path("/proc/device-tree/model")) or "").rstrip("\0")
    parts = sorted({value for name, value in figures if name in ("CPU implementer", "CPU part")})
    return named or " ".join(filter(None, [board, *parts])) or platform.processor() or "unknown"
