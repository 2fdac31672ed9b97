"""A device profile as text: tables for what it consists of, one line for each figure."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping

import msgspec

from edgeengine.spec.device import DeviceProfile, Figure

Plain = str | int | float | bool


def to_toml(profile: DeviceProfile) -> str:
    """TOML that read_profile reads back as the same profile (without its name, which is the file's place)."""
    return "\n".join(_table(msgspec.structs.replace(profile, name=""), "")) + "\n"


def _table(entry: msgspec.Struct | Mapping[str, object], path: str) -> Iterator[str]:
    """Lines of one table: its plain values and figures first, then the tables within it."""
    fields = _fields(entry)
    for key, value in fields.items():
        if not _is_table(value):
            yield f"{_key(key)} = {_value(value)}"
    for key, value in fields.items():
        if not _is_table(value):
            continue
        inner = f"{path}.{_key(key)}" if path else _key(key)
        for one in value if isinstance(value, tuple) else (value,):
            if isinstance(value, tuple):
                yield from ("", f"[[{inner}]]")
            elif not all(map(_is_table, _fields(one).values())):  # a table of tables needs no line of its own
                yield from ("", f"[{inner}]")
            yield from _table(one, inner)


def _fields(entry: msgspec.Struct | Mapping[str, object]) -> dict[str, object]:
    """What is not left at its default."""
    if isinstance(entry, Mapping):
        return dict(entry)
    given = {f.name: (getattr(entry, f.name), f.default) for f in msgspec.structs.fields(entry)}
    return {name: value for name, (value, default) in given.items() if value != default and value != {}}


def _is_table(value: object) -> bool:
    if isinstance(value, tuple):
        return bool(value) and isinstance(value[0], msgspec.Struct)
    return isinstance(value, (msgspec.Struct, Mapping)) and not isinstance(value, Figure)


def _value(value: object) -> str:
    if isinstance(value, Figure):
        return "{ " + ", ".join(f"{k} = {_value(v)}" for k, v in _fields(value).items()) + " }"
    if isinstance(value, tuple):
        return "[" + ", ".join(_value(v) for v in value) + "]"
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, bool):
        return "true" if value else "false"
    return repr(value)


def _key(key: str) -> str:
    return key if key and all(c.isascii() and (c.isalnum() or c in "-_") for c in key) else json.dumps(key)
