"""The coach's one configuration file."""

from __future__ import annotations

import tomllib
from pathlib import Path

import msgspec

from coach.carriers import CARRIERS
from edgeengine.errors import UserError


class Config(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The keys of the TOML file; all have a default.

    Attributes:
        port: the sensor's serial port; "" where the command line names it.
        framing: its wire format: wt901, cobs or cyton.
        baudrate: as the sensor is set; 0 is the usual one of the format.
        model: an .onnx with its .json beside it, or a bundle (.edge) built by the coach; "" is the one that comes with it.
        period_ms: a decision is asked for so often.
        deadline_ms: and due so long after that.
        gap_s: samples missing for longer than this make the data stale, and nothing is decided on it.
        known: learn beside windows of the people the model was trained on, so that they are not forgotten (needs the recordings).
        speed: for the emulator's --speed: so many times faster than life.
        state: folder of labels, plans and profiles; "" is the user's.
    """

    port: str = ""
    framing: str = "wt901"
    baudrate: int = 0
    model: str = ""
    period_ms: float = 500.0
    deadline_ms: float = 50.0
    gap_s: float = 0.25
    known: bool = True
    speed: float = 1.0
    state: str = ""


def load_config(file: Path) -> Config:
    """Raises UserError naming the file and the key that is wrong."""
    try:
        config = msgspec.convert(tomllib.loads(file.read_text(encoding="utf-8")), Config)
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as e:
        raise UserError(f"{file}: cannot be read as TOML ({e})") from e
    except msgspec.ValidationError as e:
        raise UserError(f"{file}: {e}; keys: {', '.join(Config.__struct_fields__)}") from e
    return check_config(config, str(file))


def check_config(config: Config, where: str) -> Config:
    """Raises UserError for a value that cannot be."""
    if config.framing not in CARRIERS or CARRIERS[config.framing].sensor is None:
        able = ", ".join(name for name, c in CARRIERS.items() if c.sensor is not None)
        raise UserError(
            f"{where}: framing = {config.framing!r} does not carry six channels of motion; these do: {able}"
        )
    limits = {"period_ms": 1e6, "deadline_ms": 1e6, "gap_s": 60.0, "speed": 100.0}
    for key, most in limits.items():
        if not 0 < getattr(config, key) <= most:
            raise UserError(f"{where}: {key} = {getattr(config, key)}: must be above 0 and at most {most:g}")
    return config
