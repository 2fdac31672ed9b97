"""Where measurements and learned state live between runs."""

from __future__ import annotations

import os
from pathlib import Path

from edgeengine.errors import UserError


def state_folder(given: str | Path | None = None) -> Path:
    """`given` (--state), else $XDG_STATE_HOME/edgeengine, else ~/.local/state/edgeengine; made if absent.

    Raises UserError when it cannot be made or written.
    """
    base = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    folder = Path(given) if given else Path(base) / "edgeengine"
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as e:
        raise UserError(
            f"{folder}: cannot make the state folder ({e.strerror}); give another with --state or XDG_STATE_HOME"
        ) from e
    if not os.access(folder, os.W_OK):
        raise UserError(f"{folder}: the state folder is not writable; give another with --state or XDG_STATE_HOME")
    return folder
