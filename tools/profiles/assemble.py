"""From the tables to one profile: its parts in the order of the file."""

from __future__ import annotations

from collections.abc import Iterator
from statistics import median

import msgspec

from edgeengine.devices.modes import faster
from edgeengine.profiling.anchors import model_key
from edgeengine.spec.device import (
    Cluster,
    DeviceProfile,
    Figure,
    LinkProfile,
    Memory,
    Mode,
    ProcessorProfile,
    Speed,
    Status,
    Throttling,
)
from tools.profiles import fits
from tools.profiles.families import Families
from tools.profiles.fits import figure, rounded
from tools.profiles.tables import Described, Row, Tables

THROUGHPUT_ONLY = ("hailort", "openvino-2024.1")  # runtimes whose figures are frames per second, several under way
MODELS = {"resnet-50": "tv/resnet50@224", "mobilenet-v2": "tv/mobilenet_v2@224"}  # of the co-execution table, known by their MACs
# The first run of a subgraph over its median run, measured on one x86-64 core (90 % lie between the last two).
FIRST_RUN = (4.6, 1.2, 18.0)
FIRST_RUN_SOURCE = "guessed as on an x86-64 core: 45 subgraphs of 7 public models, ONNX Runtime 1.32"
HANDOVER_MS = 0.1
HOST_COPIES = 2  # a copy reads and writes: it moves at half the memory's bandwidth
# A phone at full load: how long until it slows, what it bears for ever, how slow it gets.
TAU_S, SUSTAINED, SLOWEST = 120.0, 0.5, 1.5


class Assembly:
    """Profiles by name, each made once; those that are like another are made after it."""

    def __init__(self, tables: Tables):
        self._tables = tables
        self._families = Families(tables)
        self._made: dict[str, DeviceProfile] = {}

    def profile(self, name: str) -> DeviceProfile:
        if name not in self._made:
            self._made[name] = self._assemble(next(r for r in self._tables.devices if r["profile"] == name))
        return self._made[name]

    def _assemble(self, device: Row) -> DeviceProfile:
        t, chip = self._tables, device["chip"]
        described = [p for p in t.processors if p.profile == device["profile"]]
        memory = next(iter(t.chip(chip, "memory")), None)
        power = next(iter(t.chip(chip, "power")), None)
        processors = tuple(self._processor(p, device) for p in described)
        bandwidth = _given(memory, "GB/s") if memory else None
        return DeviceProfile(
            description=device["description"],
            chip=chip,
            cluster=tuple(self._clusters(chip)),
            memory=Memory(kind=memory["type"], bandwidth=bandwidth) if memory else None,
            power=_given(power, "W") if power else None,
            first_run=figure(FIRST_RUN[0], "times", FIRST_RUN_SOURCE, "guessed", *FIRST_RUN[1:]),
            slowdown=fits.company(t, described[0].device) if len({p.kind for p in described}) > 1 else None,
            throttling=_throttling() if device["form"] == "phone" else None,
            tail=fits.tail(t, "fitted" if device["form"] == "phone" else "guessed"),
            processor=processors,
            link=tuple(self._links(described, bandwidth)),
            mode=tuple(self._modes(device["profile"])),
        )

    def _clusters(self, chip: str) -> Iterator[Cluster]:
        for row in self._tables.chip(chip, "cluster"):
            cores = figure(float(row["count"]), "cores", row["source"], row["status"])  # type: ignore[arg-type]
            yield Cluster(row["name"], row["type"], cores, _given(row, "GHz"))

    def _processor(self, p: Described, device: Row) -> ProcessorProfile:
        part = next(iter(self._tables.chip(device["chip"], p.kind)), None)
        return ProcessorProfile(
            name=p.name,
            kind=p.kind,  # type: ignore[arg-type]
            resources=tuple(f"core{i}" for i in p.cores) or (p.kind,),
            description=self._description(p, device, part),
            each=p.each,
            threads=p.threads,
            memory="host" if p.kind == "cpu" else p.kind,
            runs=p.runs,
            clock=_given(part, "GHz") if part else None,
            slowdown={p.name: own} if p.each and (own := fits.cores_together(self._tables, p)) is not None else {},
            speed=dict(self._speeds(p)),
        )

    def _description(self, p: Described, device: Row, part: Row | None) -> str:
        if part is not None:
            return part["type"]
        kinds: list[str] = []
        for row in self._tables.chip(device["chip"], "cluster"):
            kinds += [row["type"]] * int(row["count"])
        used = list(dict.fromkeys(kinds[i] for i in p.cores if i < len(kinds)))
        what = " and ".join(used) or "CPU"
        return f"one {what}" if p.threads == 1 else f"{p.threads} threads on {len(p.cores)} cores, {what}"

    def _speeds(self, p: Described) -> Iterator[tuple[str, Speed]]:
        if p.like:
            profile, _, name = p.like.rpartition(":")
            original = next(q for q in self.profile(profile).processor if q.name == name)
            yield from ((key, _rounded(faster(speed, p.factor, *_likeness(p)))) for key, speed in original.speed.items())
        for precision, runtime in p.runtimes.items():
            known = self._known(p, precision)
            if runtime in THROUGHPUT_ONLY:
                yield precision, Speed(runtime, len(known), throughput=self._throughput(known, runtime))
                continue
            source = self._tables.cite([r for r, _ in known])
            line = fits.line(
                [r["model"] for r, _ in known], [g for _, g in known], [float(r["latency_ms"]) for r, _ in known], source
            )
            if line is not None:
                costs = self._families.figures(p, precision, source)
                models = _models([r for r, _ in known])
                yield precision, Speed(runtime, len(known), overhead=line[0], rate=line[1], figures=costs, models=models)

    def _known(self, p: Described, precision: str) -> list[tuple[Row, float]]:
        """(row, billions of MACs) of the measurements behind a speed."""
        if p.runtimes[precision] == "openvino-2024.1":
            mine = [r for r in self._tables.coexecution if r["device"] == p.device and r["model"] in MODELS]
            rows = [
                dict(r, latency_ms=str(1000 / float(r[f"fps_{p.unit}"])), gmacs="", model_key=MODELS[r["model"]]) for r in mine
            ]
        else:
            rows = [dict(r) for r in self._tables.rows(p, precision)]
        return [(r, g) for r in rows if (g := self._tables.gmacs(r)) is not None and g > 0]

    def _throughput(self, known: list[tuple[Row, float]], runtime: str) -> Figure | None:
        if not known:
            return None
        return fits.throughput([1000 * g / float(r["latency_ms"]) for r, g in known], self._tables.cite([r for r, _ in known]))

    def _links(self, described: list[Described], bandwidth: Figure | None) -> Iterator[LinkProfile]:
        """Between the host's memory and each accelerator's. The least latency measured there has the way there and back in it."""
        for p in described:
            if p.kind == "cpu" or bandwidth is None:
                continue
            rows = [r for precision in p.runtimes for r in self._tables.rows(p, precision)]
            least = min((float(r["latency_ms"]) / 2 for r in rows), default=HANDOVER_MS)
            latency = figure(HANDOVER_MS, "ms", "guessed: what a call to a driver takes", "guessed")
            if least < HANDOVER_MS:
                latency = figure(least, "ms", f"half the least latency measured on it: {self._tables.cite(rows)}", "derived")
            copied = "a copy through the memory both share reads and writes it"
            yield LinkProfile("host", p.kind, latency, figure(bandwidth.value / HOST_COPIES, "GB/s", copied, "derived"))

    def _modes(self, profile: str) -> Iterator[Mode]:
        rows = [r for r in self._tables.modes if r["profile"] == profile]
        for name in dict.fromkeys(r["mode"] for r in rows):
            mine = [r for r in rows if r["mode"] == name]
            power = figure(float(mine[0]["power"]), "W", mine[0]["source"], "seen") if mine[0]["power"] else None
            slower = {
                r["processor"]: figure(float(r["slower"]), "times", r["source"], r["status"])  # type: ignore[arg-type]
                for r in mine
                if r["slower"]
            }
            yield Mode(name, mine[0]["description"], power, slower, tuple(r["processor"] for r in mine if not r["slower"]))


def _given(row: Row, unit: str) -> Figure | None:
    """The value of a line of chips.csv, None where it has none."""
    return figure(float(row["value"]), unit, row["source"], row["status"]) if row["value"] else None  # type: ignore[arg-type]


def _throttling() -> Throttling:
    source = "guessed: a phone holds its peak for a minute or two, then what its skin can give off"
    return Throttling(
        figure(TAU_S, "s", source, "guessed"),
        figure(SUSTAINED, "of the time", source, "guessed"),
        figure(SLOWEST, "times", source, "guessed"),
    )


def _models(rows: list[Row]) -> dict[str, float]:
    """The median of each model's measurements, by model_key."""
    found: dict[str, list[float]] = {}
    for r in rows:
        if key := model_key(r):
            found.setdefault(key, []).append(float(r["latency_ms"]))
    return {key: rounded(median(found[key])) for key in sorted(found)}


def _likeness(p: Described) -> tuple[str, Status]:
    """Where the figures of a processor come from that is known by another one, and their status."""
    if p.factor == 1:
        return f"as {p.like}, in want of measurements", "guessed"
    return f"as {p.like}, {p.factor:g} times as fast by its clocks and cores", "derived"


def _rounded(speed: Speed) -> Speed:
    def short(f: Figure) -> Figure:
        return figure(f.value, f.unit, f.source, f.status, f.low, f.high)

    return msgspec.structs.replace(
        speed,
        overhead=speed.overhead and short(speed.overhead),
        rate=speed.rate and short(speed.rate),
        figures={k: short(f) for k, f in speed.figures.items()},
        operators={k: short(f) for k, f in speed.operators.items()},
        models={k: rounded(ms) for k, ms in speed.models.items()},
    )
