"""How the coach's programs end: whatever is wrong is one line on stderr and an exit code."""

from __future__ import annotations

import sys
from collections.abc import Callable

from edgeengine.errors import EdgeEngineError, UserError


def run(program: Callable[[], object]) -> None:
    """Exit codes: 2 your input, 3 no processor can, 4 the sensor, 70 our defect, 130 interrupted."""
    try:
        program()
    except EdgeEngineError as e:
        sys.stderr.write(f"coach: {e}\n")
        sys.exit(e.exit_code)
    except OSError as e:  # a log that cannot be written, a disk that is full
        sys.stderr.write(f"coach: {e.filename or 'output'}: {e.strerror}; give another place\n")
        sys.exit(UserError.exit_code)
    except KeyboardInterrupt:
        sys.exit(130)
