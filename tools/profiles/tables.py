"""The tables in profiles/measured, read: what was measured, what is known of each chip, which processors a profile describes."""

from __future__ import annotations

import csv
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

ROOT = Path(__file__).parents[2] / "profiles"
MEASURED = ROOT / "measured"

Row = Mapping[str, str]


def read(name: str) -> list[dict[str, str]]:
    with (MEASURED / f"{name}.csv").open(newline="") as f:
        return list(csv.DictReader(f))


@dataclass(frozen=True)
class Described:
    """One line of processors.csv: a processor of a profile, and by which measurements it is known.

    `cores` of its CPU ("0-3"). `float` and `int8` name the runtimes whose rows are taken. `like` is the processor of another
    profile ("vendor/device:name") which it is `factor` times as fast as.
    """

    profile: str
    name: str
    kind: str
    cores: tuple[int, ...]
    threads: int
    each: bool
    runs: str
    device: str
    unit: str
    measured_threads: str
    runtimes: dict[str, str]
    like: str
    factor: float

    @classmethod
    def of(cls, row: Row) -> Described:
        first, _, last = row["cores"].partition("-")
        return cls(
            profile=row["profile"], name=row["name"], kind=row["kind"],
            cores=tuple(range(int(first), int(last or first) + 1)) if first else (), threads=int(row["threads"] or 1),
            each=row["each"] == "yes", runs=row["runs"], device=row["device"], unit=row["unit"],
            measured_threads=row["measured_threads"], runtimes={p: row[p] for p in ("float", "int8") if row[p]},
            like=row["like"], factor=float(row["factor"] or 1),
        )  # fmt: skip


FLOAT = frozenset({"float", "fp32", "fp16", "auto(fp16 where supported)", "fp16(armv82)"})
INT8 = frozenset({"int8", "w8a8"})


class Tables:
    """All of them. `sources` maps a source to how a figure cites it."""

    def __init__(self) -> None:
        self.devices = read("devices")
        self.processors = [Described.of(row) for row in read("processors")]
        self.chips = read("chips")
        self.modes = read("modes")
        self.measurements = read("measurements")
        self.coexecution = read("coexecution")
        self.features = read("model_features")
        self.sources: dict[str, str] = {}
        for r in read("sources"):
            cited = f"{r['repo']} at {r['commit'][:7]} ({r['licence']})"
            self.sources[r["source"]] = "; ".join(filter(None, (self.sources.get(r["source"]), cited)))

    def rows(self, p: Described, precision: str) -> list[Row]:
        """The measurements at batch 1 behind a processor of one precision; of float in both widths those in half."""
        wanted = (p.device, p.kind, p.runtimes.get(precision, ""))
        found = self._by_group.get(wanted, [])
        names = FLOAT if precision == "float" else INT8
        rows = [
            r
            for r in found
            if r["precision"] in names and r["unit"] == p.unit and r["threads"] == p.measured_threads and r["batch"] in ("1", "")
        ]
        return [r for r in rows if r["precision"] == "fp16"] or rows

    def gmacs(self, row: Row) -> float | None:
        """Multiply-accumulates of the model, in billions, where they are known."""
        if row["gmacs"]:
            return float(row["gmacs"])
        found = self._features.get(row["model_key"]) or self._features.get(f"ncnn:{row['model']}")
        return float(found["gmacs"]) if found else self._elsewhere.get(_named(row))

    def chip(self, name: str, part: str) -> list[Row]:
        return [r for r in self.chips if r["chip"] == name and r["part"] == part]

    def cite(self, rows: Sequence[Row]) -> str:
        """The sources of some rows, in one line."""
        return "; ".join(dict.fromkeys(self.sources[r["source"]] for r in rows))

    @cached_property
    def _by_group(self) -> dict[tuple[str, str, str], list[Row]]:
        groups: dict[tuple[str, str, str], list[Row]] = {}
        for r in self.measurements:
            groups.setdefault((r["device"], r["processor"], r["runtime"]), []).append(r)
        return groups

    @cached_property
    def _elsewhere(self) -> dict[tuple[str, int], float]:
        """By model and size of input, where another source states it: of YOLOs, whose names say which network it is."""
        return {_named(r): float(r["gmacs"]) for r in self.measurements if r["gmacs"] and r["model"].startswith("yolo")}

    @cached_property
    def _features(self) -> dict[str, dict[str, str]]:
        return {r["model_key"]: r for r in self.features}


def _named(row: Row) -> tuple[str, int]:
    """A model's name, and the longest side of its input: "yolo11n" and "yolov11n" are one."""
    sides = [int(n) for n in re.findall(r"\d+", row["input"])]
    return re.sub(r"^yolo(?=\d)", "yolov", row["model"].lower()), max(sides, default=0)
