"""`python -m listen SOUND.wav`, where the bundles lie."""

from __future__ import annotations

import sys
from pathlib import Path

from edgeengine.errors import EdgeEngineError, UserError
from edgeengine.io import read_wav
from listen import RATE_HZ, listen


def heard(arguments: list[str]) -> str:
    """What was heard in the one file named. Raises UserError for a sound that is not one channel at RATE_HZ."""
    if len(arguments) != 1 or arguments[0].startswith("-"):
        raise UserError("give one file: python -m listen SOUND.wav")
    sound, rate_hz = read_wav(arguments[0])
    if sound.ndim != 1 or rate_hz != RATE_HZ or not len(sound):
        channels = 1 if sound.ndim == 1 else sound.shape[1]
        raise UserError(
            f"{arguments[0]}: {len(sound)} samples, {channels} channels at {rate_hz} Hz; give some of one at {RATE_HZ} Hz"
        )
    found = listen(sound, Path("."))
    voiced = sum(p > 0.5 for _, p in found.voice)
    return f"{len(found.voice)} steps, {voiced} with voice, {len(found.words)} looks at words\n"


def main() -> None:
    """Exit codes: 2 your input, 3 no processor can, 4 a processor failed, 70 our defect, 130 interrupted."""
    try:
        sys.stdout.write(heard(sys.argv[1:]))
    except EdgeEngineError as e:
        sys.stderr.write(f"listen: {e}\n")
        sys.exit(e.exit_code)
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main()
