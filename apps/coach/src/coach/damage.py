"""What happens to bytes between a device and us. Seeded; the same seed damages the same bytes."""

from __future__ import annotations

import numpy as np

_LOST, _FLIPPED = 0, 1  # the third way is a byte put in


class Damage:
    """Each byte is hit with probability `errors`: it is lost, has one bit flipped, or gets a random byte before it, one as often
    as the other.
    """

    def __init__(self, errors: float, rng: np.random.Generator):
        self._errors, self._rng = errors, rng

    def apply(self, data: bytes) -> bytes:
        hit = self._rng.random(len(data)) < self._errors
        if not hit.any():
            return data
        out = bytearray()
        for byte, is_hit in zip(data, hit, strict=True):
            way = int(self._rng.integers(3)) if is_hit else None
            if way is None:
                out.append(byte)
            elif way == _FLIPPED:
                out.append(byte ^ 1 << int(self._rng.integers(8)))
            elif way != _LOST:
                out += bytes([int(self._rng.integers(256)), byte])
        return bytes(out)
