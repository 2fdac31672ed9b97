"""The one field that every file of ours has."""

from __future__ import annotations

import msgspec


class Versioned(msgspec.Struct):
    """Decoded first: a file of another schema is named as such, whatever else in it we would not understand."""

    schema: int
