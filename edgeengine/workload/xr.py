"""XRBench's usage scenarios as workloads given by latencies (Kwon et al., XRBench, MLSys 2023; figures as coded in its
repository, github.com/XRBench/XRBench-MLSys2023, MIT).

A period is the whole milliseconds of 1000 / FPS. A dependent model runs on the frame that its parent finished, and is due with
it. Latencies are not XRBench's (its cost model is MAESTRO) but MACs / rate, so that a device is three numbers.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeVar

import msgspec

from edgeengine.errors import UserError
from edgeengine.spec.device import DeviceProfile, ProcessorProfile, Speed
from edgeengine.workload.task import Task, Workload

T = TypeVar("T")

RUN_MS = 700  # the length of XRBench's runs

# Multiply-accumulates in millions, summed over XRBench's layer lists (every layer counted as a dense convolution).
MEGA_MACS = {
    "KD": 5.3, "AS": 354.5, "ES": 1040.0, "GE": 2250.0, "HT": 3726.0, "PD": 7524.0, "ASR": 9664.0, "OD": 9707.0,
    "DR": 16837.0, "DE": 18494.0, "SS": 20095.0,
}  # fmt: skip
FULL_NAMES = {
    "KD": "res8_narrow", "AS": "ED_TCN", "ES": "RITNet", "GE": "FBNet_C", "HT": "hand_graph_cnn", "PD": "PlaneRCNN",
    "ASR": "EM_24L", "OD": "D2go_FasterRCNN", "DR": "RGBd_200", "DE": "midas_v21_small", "SS": "HRViT_b1",
}  # fmt: skip


@dataclass(frozen=True)
class Model:
    """One model of a scenario: frames per second, and the model whose frame it needs with the probability that it is needed."""

    name: str
    fps: int
    after: str | None = None
    probability: float = 1.0

    @property
    def period_ms(self) -> int:
        return 1000 // self.fps


_EYES = (Model("ES", 60), Model("GE", 60, "ES"))
SCENARIOS: dict[str, tuple[Model, ...]] = {
    "vr_gaming": (*_EYES, Model("HT", 45)),
    "ar_gaming": (Model("HT", 45), Model("DE", 30), Model("PD", 15)),
    "ar_assistant": (
        Model("KD", 3), Model("ASR", 3, "KD", 0.5), Model("SS", 10), Model("DE", 30), Model("PD", 15), Model("OD", 10),
    ),
    "outdoor_activity_a": (Model("KD", 3), Model("ASR", 3, "KD", 0.2), Model("SS", 10), Model("OD", 30)),
    "outdoor_activity_b": (Model("KD", 3), Model("ASR", 3, "KD", 0.2), Model("OD", 30)),
    "social_interaction_a": (*_EYES, Model("DR", 30), Model("HT", 45)),
    "social_interaction_b": (*_EYES, Model("AS", 30)),
}  # fmt: skip


NOT_ON_NPUS = ("ASR", "PD")  # their operators are not among those that NPUs take


@dataclass(frozen=True)
class Rates:
    """A device for these scenarios: tera-MACs per second and watts by processor.

    `unsupported` and `slower` correct single models: pairs (model, processor) that do not run, and (model, processor) ->
    latency as a multiple of that on the CPU. `overhead_ms` is added to every latency.
    """

    tera_macs_s: Mapping[str, float]
    watts: Mapping[str, float]
    unsupported: frozenset[tuple[str, str]] = frozenset((model, "npu") for model in NOT_ON_NPUS)
    slower: Mapping[tuple[str, str], float] = field(default_factory=dict)
    overhead_ms: Mapping[str, float] = field(default_factory=dict)

    def dense_ms(self, mega_macs: float) -> dict[str, float]:
        """Latency by processor, for a model of so many multiply-accumulates (millions) that runs everywhere."""
        return {p: mega_macs / 1e3 / rate + self.overhead_ms.get(p, 0.0) for p, rate in self.tera_macs_s.items()}

    def energy_mj(self, latency_ms: Mapping[str, float]) -> dict[str, float]:
        return {p: ms * self.watts[p] for p, ms in latency_ms.items()}

    def latency_ms(self, model: str) -> dict[str, float]:
        plain = {p: ms for p, ms in self.dense_ms(MEGA_MACS[model]).items() if (model, p) not in self.unsupported}
        return {p: plain["cpu"] * self.slower[model, p] if (model, p) in self.slower else ms for p, ms in plain.items()}


_SMALL_ON_GPU = {("KD", "gpu"): 1.6, ("AS", "gpu"): 1.6}  # launch-bound nets
_WATTS = {"cpu": 3.0, "gpu": 4.0, "npu": 2.0}
DEVICES = {
    "a": Rates({"cpu": 0.1, "gpu": 0.5, "npu": 2.0}, _WATTS, slower=_SMALL_ON_GPU),
    "b": Rates({"cpu": 0.4, "gpu": 1.0, "npu": 2.0}, _WATTS, slower=_SMALL_ON_GPU),
}


def xr_workload(scenario: str, device: str | Rates = "a", *, scale: float = 1.0, segments: int = 1) -> Workload:
    """The scenario on the device, every latency times `scale`, every model in `segments` equal parts.

    Energies (mJ) are latency x watts. Raises UserError for an unknown scenario or device.
    """
    rates = known_rates(device)
    latency = {
        m.name: {p: ms * scale for p, ms in rates.latency_ms(m.name).items()} for m in known(SCENARIOS, scenario, "scenario")
    }
    energy = {name: rates.energy_mj(by) for name, by in latency.items()}
    return workload_of(scenario, latency, energy, segments=segments)


def mega_macs(task: str) -> float:
    """Multiply-accumulates of a task's model, in millions."""
    return MEGA_MACS[task]


def workload_of(
    scenario: str,
    latency_ms: Mapping[str, Mapping[str, float]],
    energy_mj: Mapping[str, Mapping[str, float]],
    *,
    segments: int = 1,
) -> Workload:
    """The scenario with these latencies and energies by model and processor."""
    tasks = tuple(
        Task(
            name=m.name,
            period_ms=None if m.after else float(m.period_ms),
            deadline_ms=float(m.period_ms),
            after=m.after,
            probability=m.probability,
            latency_ms=dict(latency_ms[m.name]),
            energy_mj=dict(energy_mj[m.name]),
            segments=segments,
        )
        for m in known(SCENARIOS, scenario, "scenario")
    )
    return ready_workload(f"xr:{scenario}", tasks)


def ready_workload(path: str, tasks: tuple[Task, ...]) -> Workload:
    """One that comes from no file: `path` is its name, its identity that of its tasks."""
    return Workload(tasks=tasks, path=path, sha256=hashlib.sha256(msgspec.json.encode(tasks)).hexdigest())


def rates_of(device: DeviceProfile) -> Rates:
    """The scenarios' rates on a described device: the line through each processor's measurements, of float models first.

    Watts are the profile's where it has them, else those of the made-up devices above. Raises UserError for a device without
    rates.
    """
    speeds = {p.name: speed for p in device.processor if (speed := line_of(p)) is not None}
    if not speeds:
        raise UserError(f"{device.name} has no rate for any processor: its latencies are not known")
    made = [(m.name, p) for p in device.processor if p.name in speeds for m in p.processors]
    return Rates(
        tera_macs_s={name: rate.value / 1e3 for name, p in made if (rate := speeds[p.name].rate) is not None},
        watts={name: p.power.value if p.power is not None else _WATTS[p.kind] for name, p in made},
        unsupported=frozenset((model, name) for model in NOT_ON_NPUS for name, p in made if p.kind == "npu"),
        overhead_ms={name: o.value for name, p in made if (o := speeds[p.name].overhead) is not None},
    )


def line_of(processor: ProcessorProfile) -> Speed | None:
    """The speed whose line stands for the processor where nothing but MACs is known."""
    return next((s for k in ("float", "int8") if (s := processor.speed.get(k)) is not None and s.has_line), None)


def known_rates(device: str | Rates) -> Rates:
    """Raises UserError for an unknown name."""
    return device if isinstance(device, Rates) else known(DEVICES, device, "XR device")


def known(table: Mapping[str, T], name: str, what: str) -> T:
    """Raises UserError, naming the known ones, for a name that is not in the table."""
    if name not in table:
        raise UserError(f"there is no {what} {name!r}; choose one of {', '.join(table)}")
    return table[name]
