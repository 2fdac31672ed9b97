"""Where our training step spends its time: kernels by operator, from ONNX Runtime's profile of train_step.onnx.

`python -m benchmarks.training_kernels NET [BATCH]`. What explains a missed cell of `benchmarks.training`.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections import Counter, defaultdict
from pathlib import Path

import numpy as np
import onnxruntime as ort

from benchmarks.training import prepared
from edgeengine.bundle import open_bundle
from edgeengine.training import Trainer

RUNS, WARM = 60, 10


def kernels(net: str, batch: int | None = None) -> tuple[dict[str, float], dict[str, int]]:
    """(microseconds a step by operator, most first; how many nodes), the lower decile of each node over the runs."""
    with prepared(net) as (folder, _), tempfile.TemporaryDirectory(prefix="edgeengine-") as traces:
        bundle = open_bundle(folder / "net.edge")
        with np.load(folder / "batch.npz") as archive:
            x, label = archive["x"][:batch], archive["label"][:batch]
        options = ort.SessionOptions()
        options.intra_op_num_threads = 1
        options.log_severity_level = 3
        options.enable_profiling = True
        options.profile_file_prefix = str(Path(traces, "step"))
        trainer = Trainer(bundle)
        session = ort.InferenceSession(str(bundle.path / trainer.spec.step), options, providers=["CPUExecutionProvider"])
        state = trainer.state
        known = {"x": x, trainer.spec.label.name: label, **state.parameters, **state.statistics, **state.slots}
        known |= {"lr": np.array(0.001, np.float32), "step": np.array(1, np.float32)}
        for _ in range(RUNS):
            session.run(None, {i.name: known[i.name] for i in session.get_inputs()})
        events = json.loads(Path(session.end_profiling()).read_text())
    taken: dict[tuple[str, str], list[int]] = defaultdict(list)
    for event in events:
        if event.get("cat") == "Node" and event["name"].endswith("kernel_time"):
            taken[event["args"]["op_name"], event["name"]].append(event["dur"])
    times, counts = Counter[str](), Counter[str]()
    for (operator, _), durations in taken.items():
        times[operator] += float(np.percentile(durations[WARM:], 10))  # type: ignore[assignment]
        counts[operator] += 1
    return dict(times.most_common()), dict(counts)


def main() -> None:
    found, counts = kernels(sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else None)
    total = sum(found.values())
    print(f"{sys.argv[1]}: {total / 1000:.2f} ms in {sum(counts.values())} kernels")
    for operator, time in found.items():
        if time > 0.01 * total:
            print(f"  {operator:24}{counts[operator]:5} nodes {time:9.0f} us {100 * time / total:5.1f} %")


if __name__ == "__main__":
    main()
