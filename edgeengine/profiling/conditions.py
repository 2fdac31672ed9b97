"""Under which conditions a row was measured: when, with which versions, at which clock policy."""

from __future__ import annotations

import datetime
import importlib.metadata
from collections.abc import Sequence
from pathlib import Path

from edgeengine.devices.cores import SYSTEM


def versions() -> dict[str, str]:
    return {name: importlib.metadata.version(name) for name in ("onnxruntime", "numpy")}


def timestamp() -> str:
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")


def governor(cores: Sequence[int], cpus: Path = SYSTEM) -> str:
    """The frequency governor of the cores ("performance,powersave" where they differ), "" where it cannot be read.

    Source: the Linux kernel's documentation of CPU performance scaling (scaling_governor in sysfs).
    """
    found = set()
    for core in cores:
        try:
            found.add((cpus / f"cpu{core}/cpufreq/scaling_governor").read_text().strip())
        except OSError:  # no frequency scaling here, as in virtual machines and containers, or not Linux
            continue
    return ",".join(sorted(found))
