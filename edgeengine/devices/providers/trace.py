"""Where a session's time goes, provider by provider, from ONNX Runtime's own trace.

Tracing slows small models many times over, so shares are taken from it and never a latency; the runs are those of a session of
its own.
"""

from __future__ import annotations

import json
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import onnxruntime as ort

RUNS = 3

Tracing = Callable[[Path], ort.InferenceSession]
"""Makes the session anew, with its trace going to files that begin with this path."""


def traced(options: ort.SessionOptions, prefix: Path) -> ort.SessionOptions:
    """The options, with the trace switched on."""
    options.enable_profiling = True
    options.profile_file_prefix = str(prefix)
    return options


def time_share(make: Tracing, run: Callable[[ort.InferenceSession], object]) -> dict[str, float]:
    """Share of the nodes' time by provider over a few runs, adding to 1; empty where the trace tells of no node."""
    with tempfile.TemporaryDirectory(prefix="edgeengine-") as folder:
        session = make(Path(folder, "trace"))
        for _ in range(RUNS):
            run(session)
        events = json.loads(Path(session.end_profiling()).read_bytes())
    return _shares(events)


def _shares(events: list[dict[str, Any]]) -> dict[str, float]:
    """Nodes without a provider name (those of a subgraph's control flow) are left out: what they contain is told apart."""
    spent: Counter[str] = Counter()
    for event in events:
        provider = event.get("args", {}).get("provider", "")
        if event.get("cat") == "Node" and str(event.get("name", "")).endswith("_kernel_time") and provider:
            spent[provider] += event["dur"]
    total = sum(spent.values())
    return {name: us / total for name, us in spent.items()} if total else {}
