"""`python -m listen SOUND.wav`, where the bundles lie."""

from __future__ import annotations

import sys
from pathlib import Path

from edgeengine.io import read_wav
from listen import listen

found = listen(read_wav(sys.argv[1])[0], Path("."))
print(f"{len(found.voice)} steps, {sum(p > 0.5 for _, p in found.voice)} with voice, {len(found.words)} looks at words")
