"""DISB, REEF's benchmark of real-time beside best-effort inference, as workloads given by latencies (Han et al., REEF, OSDI 2022;
clients as listed in github.com/SJTU-IPADS/disb, workloads.md).

Real-time clients send at their rate whatever happens, each request due before the next; they are of class `high`. A best-effort
client is a closed loop: it sends when its last answer has come, without a deadline, which is a training task's form.
Latencies are not REEF's (a server GPU) but MACs / rate on the devices of XRBench's scenarios (see workload.xr), estimated.
"""

from __future__ import annotations

from edgeengine.workload.task import Arrivals, Task, Workload
from edgeengine.workload.xr import Rates, known, known_rates, ready_workload

# Multiply-accumulates in millions: torchvision's published operations (VGG-19, ResNet-152, DenseNet-201 at 224, Inception v3 at
# 299); DistilBERT from its shape (6 layers of width 768, 32 tokens: DISB's usual length).
MEGA_MACS = {
    "vgg": 19_632.0, "resnet": 11_514.0, "densenet": 4_291.0, "inception": 5_713.0,
    "bert": 6 * (32 * (4 * 768**2 + 2 * 768 * 3072) + 2 * 32**2 * 768) / 1e6,
}  # fmt: skip
ALL = tuple(MEGA_MACS)
_REAL_TIME, _BEST_EFFORT = "rt-", "be-"

# name -> (how real-time clients send, requests a second, real-time clients, best-effort clients)
WORKLOADS: dict[str, tuple[str, float, tuple[str, ...], tuple[str, ...]]] = {
    "A": ("uniform", 100.0, ("vgg",), ("resnet",)),
    "B": ("uniform", 220.0, ("vgg",), ("resnet",)),
    "C": ("uniform", 100.0, ("vgg",), ALL),
    "D": ("uniform", 20.0, ALL, ALL),
    "E": ("poisson", 20.0, ALL, ALL),
}


def disb_workload(name: str, device: str | Rates = "a", *, scale: float = 1.0, segments: int = 1) -> Workload:
    """The workload on the device, every latency times `scale`, every model in `segments` equal parts.

    Tasks are named rt-MODEL and be-MODEL. Raises UserError for an unknown workload or device.
    """
    pattern, rate_hz, real_time, best_effort = known(WORKLOADS, name, "DISB workload")
    rates = known_rates(device)

    def client(name: str, model: str, **how: object) -> Task:
        latency_ms = {p: ms * scale for p, ms in rates.dense_ms(MEGA_MACS[model]).items()}
        energy_mj = rates.energy_mj(latency_ms)
        return Task(name=name + model, latency_ms=latency_ms, energy_mj=energy_mj, segments=segments, **how)  # type: ignore[arg-type]

    release = {"rate_hz": rate_hz} if pattern == "uniform" else {"arrivals": Arrivals(poisson=rate_hz)}
    tasks = [client(_REAL_TIME, model, criticality="high", deadline_ms=1e3 / rate_hz, **release) for model in real_time]
    tasks += [client(_BEST_EFFORT, model, kind="train") for model in best_effort]
    return ready_workload(f"disb:{name}", tuple(tasks))


def mega_macs(task: str) -> float:
    """Multiply-accumulates of a task's model, in millions."""
    return MEGA_MACS[task.removeprefix(_REAL_TIME).removeprefix(_BEST_EFFORT)]
