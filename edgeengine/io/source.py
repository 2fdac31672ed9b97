"""The interface of every source of inputs."""

from __future__ import annotations

from typing import Protocol

import numpy as np


class Source(Protocol):
    """Pulled on the worker when a job of its task starts, with the job's release time.

    It needs no thread of its own, so the same call serves real and virtual time. A source that holds something open (a port, a
    file) may have `open()` and `close()` besides: the engine calls the first when it is entered, the second when it ends; both
    do nothing when that is done already.
    """

    def read(self, index: int, release_ns: int) -> dict[str, np.ndarray]:
        """The inputs of job `index`, as of `release_ns` (since the start of the run), by input name.

        Negative indices and times ask for what came before the run; they prime windows and filters. The arrays may be
        kept by the caller and must not be written afterwards.
        """
        ...
