"""One trainer of one net in a process of its own: ours, torch eager, or onnxruntime-training under its own interpreter.

`training_subject.py KIND FOLDER NET THREADS`; FOLDER holds net.edge, net17.onnx, artifacts of onnxruntime-training and
batch.npz. Says `{"ready": true}`, then answers a line `COUNT BATCH` with {"ns": [time of each of COUNT steps]} (one more
is made first; with one thread it is the processor's time, which what else runs on a shared machine does not stretch), and
`memory BATCH` with {"bytes": growth of the peak resident size in ten steps}.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

LR = 0.001
Step = Callable[[np.ndarray, np.ndarray], object]


def ours(folder: Path, net: str, threads: int) -> Step:
    from edgeengine.bundle import open_bundle
    from edgeengine.training import Trainer

    trainer = Trainer(open_bundle(folder / "net.edge"), threads=threads)
    return lambda x, label: trainer.step({"x": x}, label, LR)


def eager(folder: Path, net: str, threads: int) -> Step:
    import torch
    import torch.nn.functional as F

    from benchmarks.training_nets import made

    torch.set_num_threads(threads)
    module = made(net)
    optimizer = torch.optim.SGD(module.parameters(), lr=LR)

    def step(x: np.ndarray, label: np.ndarray) -> float:
        optimizer.zero_grad()
        loss = F.cross_entropy(module(torch.from_numpy(x)), torch.from_numpy(label))
        loss.backward()
        optimizer.step()
        return float(loss.detach())

    return step


def runtime(folder: Path, net: str, threads: int) -> Step:
    """onnxruntime-training's own loop: a training and an optimizer graph that it made itself."""
    import onnxruntime
    from onnxruntime.training.api import CheckpointState, Module, Optimizer

    made = folder / "artifacts"
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    state = CheckpointState.load_checkpoint(str(made / "checkpoint"))
    module = Module(str(made / "training_model.onnx"), state, str(made / "eval_model.onnx"), session_options=options)
    optimizer = Optimizer(str(made / "optimizer_model.onnx"), module)
    optimizer.set_learning_rate(LR)
    module.train()

    def step(x: np.ndarray, label: np.ndarray) -> float:
        loss = module(x, label)
        optimizer.step()
        module.lazy_reset_grad()
        return float(np.asarray(loss).reshape(-1)[0])

    return step


def artifacts(folder: Path) -> None:
    """What `runtime` trains with, from net17.onnx."""
    import onnx
    from onnxruntime.training import artifacts as generator

    (folder / "artifacts").mkdir()
    proto = onnx.load(folder / "net17.onnx")
    for node in proto.graph.node:
        if node.op_type == "LayerNormalization":  # its gradient builder wants all three outputs
            node.output[:] = [node.output[0], f"{node.output[0]}/mean", f"{node.output[0]}/inverse"]
    generator.generate_artifacts(
        proto,
        requires_grad=[t.name for t in proto.graph.initializer if t.data_type == onnx.TensorProto.FLOAT and t.dims],
        loss=generator.LossType.CrossEntropyLoss,
        optimizer=generator.OptimType.SGD,
        artifact_directory=str(folder / "artifacts"),
    )


KINDS = {"ours": ours, "torch": eager, "onnxruntime-training": runtime}


def resident(field: str) -> int:
    """VmRSS or VmHWM in bytes."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{field}:"))


def main() -> None:
    kind, where, net, threads = sys.argv[1:5]
    folder = Path(where)
    if kind == "artifacts":
        artifacts(folder)
        return
    answers, sys.stdout = sys.stdout, open(os.devnull, "w")  # noqa: SIM115 (open until the process ends)
    with np.load(folder / "batch.npz") as archive:
        x, label = archive["x"], archive["label"]
    step = KINDS[kind](folder, net, int(threads))
    clock = time.process_time_ns if threads == "1" else time.perf_counter_ns
    print(json.dumps({"ready": True}), file=answers, flush=True)
    for line in sys.stdin:
        what, size = line.split()
        batch = x[: int(size)], label[: int(size)]
        if what == "memory":
            Path("/proc/self/clear_refs").write_text("5")  # the peak starts anew
            before = resident("VmRSS")
            for _ in range(10):
                step(*batch)
            answer: dict[str, object] = {"bytes": resident("VmHWM") - before}
        else:
            step(*batch)
            times = []
            for _ in range(int(what)):
                begun = clock()
                step(*batch)
                times.append(clock() - begun)
            answer = {"ns": times}
        print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    main()
