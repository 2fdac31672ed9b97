"""Band's sample workloads, given by latencies (Jeong et al., Band, MobiSys 2022; models, copies and periods as in
github.com/mrsnu/band, script/config_samples).

`sample`: benchmark_{heft,lsf,rr,sel}.json, a face detector three times and a classifier twice. `heat`:
benchmark_heat_unbalanced.json, a classifier ten times. Each copy is a task of its own, due before its next release; releases are
open-loop, where Band's periodic mode waits for answers. Latencies are MACs / rate on the devices of XRBench's scenarios (see
workload.xr), estimated. Samples with models whose operations are not published (arcface, ICN) are left out.
"""

from __future__ import annotations

from edgeengine.workload.task import Task, Workload
from edgeengine.workload.xr import Rates, known, known_rates, ready_workload


def _retinaface_mega_macs(size: int = 160) -> float:
    """RetinaFace on MobileNetV2 without its classifier (299.5 at 224), scaled to the image; a feature pyramid of 64 channels over
    strides 8, 16 and 32 (from 32, 96 and 320 channels), and context modules of 3x3 convolutions (64 -> 32, 64 -> 16 and three of
    16 -> 16) on each level (Deng et al., RetinaFace, CVPR 2020).
    """
    fine, middle, coarse = ((size // stride) ** 2 for stride in (8, 16, 32))
    lateral = 64 * (32 * fine + 96 * middle + 320 * coarse)
    merging = 9 * 64 * 64 * (fine + middle)
    context = 9 * (64 * 32 + 64 * 16 + 3 * 16 * 16) * (fine + middle + coarse)
    return 299.5 * (size / 224) ** 2 + (lateral + merging + context) / 1e6


# Multiply-accumulates in millions: published operations of the MobileNets at 224, RetinaFace derived.
MEGA_MACS = {"retinaface": _retinaface_mega_macs(), "mobilenet-v1": 568.7, "mobilenet-v2": 300.8}

# name -> (model, copies, period in ms)
WORKLOADS: dict[str, tuple[tuple[str, int, float], ...]] = {
    "sample": (("retinaface", 3, 30.0), ("mobilenet-v1", 2, 30.0)),
    "heat": (("mobilenet-v2", 10, 90.0),),
}


def band_workload(name: str, device: str | Rates = "a", *, scale: float = 1.0, segments: int = 1) -> Workload:
    """The workload on the device, every latency times `scale`, every model in `segments` equal parts.

    Tasks are named MODEL-COPY, from 0. Raises UserError for an unknown workload or device.
    """
    rates = known_rates(device)
    tasks = []
    for model, copies, period_ms in known(WORKLOADS, name, "Band workload"):
        latency_ms = {p: ms * scale for p, ms in rates.dense_ms(MEGA_MACS[model]).items()}
        energy_mj = rates.energy_mj(latency_ms)
        tasks += [
            Task(name=f"{model}-{i}", period_ms=period_ms, latency_ms=latency_ms, energy_mj=energy_mj, segments=segments)
            for i in range(copies)
        ]
    return ready_workload(f"band:{name}", tuple(tasks))


def mega_macs(task: str) -> float:
    """Multiply-accumulates of a task's model, in millions."""
    return MEGA_MACS[task.rpartition("-")[0]]
