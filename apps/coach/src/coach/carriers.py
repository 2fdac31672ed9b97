"""How each wire format carries the watch's six channels: what an emulated device sends, what a sensor reads out of it."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from edgeengine.errors import UserError
from edgeengine.io.framing import Sample

_DEGREES = 180 / math.pi
_UV_PER_UNIT = 1000.0  # a Cyton's channels are voltages: 1 mV stands for 1 g or 1 rad/s


@dataclass(frozen=True)
class Carrier:
    """`samples(row, counter)` are what a device sends for one row [6] of a recording (g, rad/s).

    `sensor` holds SerialSensor's options that turn it back into the same units; None where the format has no room for six
    channels and only something like the movement goes over it.
    """

    baudrate: int
    samples: Callable[[np.ndarray, int], list[Sample]]
    parity: str = "N"
    sensor: dict[str, Any] | None = field(default=None)


def _wt901(row: np.ndarray, counter: int) -> list[Sample]:
    ax, ay, az, wx, wy, wz = (float(v) for v in row)
    turned = (wx * _DEGREES, wy * _DEGREES, wz * _DEGREES)
    return [Sample("acceleration", (ax, ay, az)), Sample("angular rate", turned)]


def _cobs(row: np.ndarray, counter: int) -> list[Sample]:
    return [Sample("values", tuple(float(v) for v in row), counter % 256)]


def _cyton(row: np.ndarray, counter: int) -> list[Sample]:
    return [Sample("biosignal", (*(float(v) * _UV_PER_UNIT for v in row), 0.0, 0.0), counter % 256)]


def _lines(row: np.ndarray, counter: int) -> list[Sample]:
    return [Sample("level", (float(np.clip(512 + 100 * row[0], 0, 1023)),))]


def _cms50d(row: np.ndarray, counter: int) -> list[Sample]:
    return [Sample("oximetry", (float(np.clip(64 + 16 * row[0], 0, 127)), 72.0, 97.0, 8.0))]


CARRIERS = {
    "wt901": Carrier(
        115_200, _wt901, sensor={"kinds": ("acceleration", "angular rate"), "scale": (1.0,) * 3 + (_DEGREES,) * 3}
    ),
    "cobs": Carrier(115_200, _cobs, sensor={"kinds": ("values",), "take": range(6)}),
    "cyton": Carrier(115_200, _cyton, sensor={"kinds": ("biosignal",), "take": range(6), "scale": (_UV_PER_UNIT,) * 6}),
    "lines": Carrier(9_600, _lines),
    "cms50d+": Carrier(19_200, _cms50d, parity="O"),
}


def carrier(framing: str) -> Carrier:
    """Raises UserError for a format that nothing is known of."""
    if framing not in CARRIERS:
        raise UserError(f"framing {framing!r}: choose one of {', '.join(CARRIERS)}")
    return CARRIERS[framing]
