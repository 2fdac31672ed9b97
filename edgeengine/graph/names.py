"""Help with misspelt tensor names."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def near(name: str, known: Iterable[str]) -> str:
    """The known names closest to `name`, as a question; the first few known ones where none is close."""
    names = list(known)
    close = difflib.get_close_matches(name, names, n=3, cutoff=0.5)
    if close:
        return f"did you mean {' or '.join(map(repr, close))}?"
    return f"known are {', '.join(map(repr, names[:8]))}{', …' if len(names) > 8 else ''}"
