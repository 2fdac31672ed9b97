"""Anchors: a few measurements on a device of one's own, to calibrate a described one by."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from edgeengine.bundle import Bundle
from edgeengine.errors import UserError
from edgeengine.profiling.back_to_back import BACK_TO_BACK
from edgeengine.profiling.store import read_profile
from edgeengine.spec import ProfileRow

LEAST, MOST = 1e-9, 1e9  # of ms and of GMAC: what lies outside is a slip of the pen
KINDS = ("cpu", "gpu", "npu")
PRECISIONS = {"float": "float", "fp32": "float", "fp16": "float", "int8": "int8", "w8a8": "int8"}


class Anchor(NamedTuple):
    """`processor`: a name of the profile's, or a kind, then with `threads` where they are known. `where` names its line, for
    messages; `model` its model_key, "" where it has none.
    """

    processor: str
    precision: str
    macs: float
    latency_ms: float
    where: str
    threads: int | None = None
    model: str = ""


def read_csv(file: Path, macs_of: Mapping[str, float]) -> list[Anchor]:
    """From columns processor, precision, latency_ms, gmacs or a model_key in `macs_of`, and threads; others are left alone.

    Raises UserError naming the line that says something else.
    """
    try:
        with file.open(newline="", encoding="utf-8-sig") as f:
            reader = csv.DictReader(f)
            missing = {"processor", "precision", "latency_ms"} - set(reader.fieldnames or ())
            if missing:
                raise UserError(
                    f"{file}, line 1: no column {', '.join(sorted(missing))}; the columns are those of measurements.csv"
                )
            anchors = [_anchor(row, f"{file}, line {reader.line_num}", macs_of) for row in reader]
    except (OSError, UnicodeDecodeError, csv.Error) as e:
        raise UserError(f"{file}: cannot be read as CSV ({e})") from e
    return _some(anchors, file)


def _anchor(row: Mapping[str, str | None], where: str, macs_of: Mapping[str, float]) -> Anchor:
    precision = PRECISIONS.get(row["precision"] or "")
    if precision is None:
        raise UserError(f"{where}: precision {row['precision']!r}; known: {', '.join(PRECISIONS)}")
    if not row["processor"]:
        raise UserError(f"{where}: no processor; give its name in the profile, or {', '.join(KINDS)}")
    if row.get("batch") not in (None, "", "1"):
        raise UserError(f"{where}: batch {row['batch']}; anchors are latencies of one input at a time")
    key = model_key(row)
    if row.get("gmacs"):
        macs = _positive(row["gmacs"], f"{where}: gmacs") * 1e9
    elif key in macs_of:
        macs = macs_of[key]
    else:
        raise UserError(f"{where}: no gmacs, and model_key {key!r} is not known; give gmacs, billions of multiply-accumulates")
    threads = row.get("threads") or ""
    latency_ms = _positive(row["latency_ms"], f"{where}: latency_ms")
    return Anchor(row["processor"], precision, macs, latency_ms, where, int(threads) if threads.isdecimal() else None, key)


def model_key(row: Mapping[str, str | None]) -> str:
    """Of a line with the columns of measurements.csv: by which its model is known in all tables; "" where it is not."""
    of_ncnn = (row.get("runtime") or "").startswith("ncnn") and row.get("model")
    return row.get("model_key") or (f"ncnn:{row['model']}" if of_ncnn else "")


def _positive(text: str | None, where: str) -> float:
    try:
        value = float(text or "")
    except ValueError as e:
        raise UserError(f"{where}: {text!r} is not a number") from e
    if not LEAST <= value <= MOST:
        raise UserError(f"{where}: must be positive, from {LEAST:g} to {MOST:g}, and is {text}")
    return value


def read_export(file: Path, bundles: Sequence[Bundle]) -> list[Anchor]:
    """From what `edgeengine profiles export` wrote on the device: whole models and parts, measured back to back.

    Raises UserError for a file that is none, and for rows of bundles that are not given: MACs are in their manifests.
    """
    by_hash = {b.hash: b.manifest for b in bundles}
    anchors = []
    for number, row in enumerate(read_profile(file)[0], 1):
        if not _is_anchor(row):
            continue
        manifest = by_hash.get(row.bundle)
        if manifest is None:
            raise UserError(f"{file}, row {number}: bundle {row.bundle[:12]} is not at hand; give it with --bundle")
        macs = manifest.subgraph(row.subgraph).macs
        if macs:
            precision = "int8" if "QuantizeLinear" in manifest.whole.op_counts else "float"
            anchors.append(Anchor(row.processor, precision, macs, row.latency.p50_ns / 1e6, f"{file}, row {number}"))
    return _some(anchors, file)


def _is_anchor(row: ProfileRow) -> bool:
    return row.condition == BACK_TO_BACK and row.usable and row.measured and row.latency.n > 0


def _some(anchors: list[Anchor], file: Path) -> list[Anchor]:
    if not anchors:
        raise UserError(f"{file}: no measurement in it")
    return anchors
