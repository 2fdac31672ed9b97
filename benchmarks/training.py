"""A training step: ours beside torch eager and onnxruntime-training 1.19.2, as ratios in one run.

Each trains the same five nets with SGD, in a process of its own, and they take turns: a block of steps each, round after
round, the other processes asleep. A figure is the median over the rounds of our block's median by the better peer's in
the same round; times are the processor's with one thread, the clock's with two. Memory: growth of the peak resident size
in ten steps, above that of the loaded process before any.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from benchmarks import harness

BLOCK_NS, ROUNDS = 40_000_000, 15
MOST_STEPS = 60
AIM_TWO_THREADS = AIM_MEMORY = 100
PEER = "onnxruntime-training"
RUNNER = Path(__file__).with_name("training_subject.py")


class Subject:
    """A process that makes steps when told."""

    def __init__(self, kind: str, folder: Path, net: str, threads: int):
        python = peer_python() if kind == PEER else Path(sys.executable)
        root = str(Path(__file__).parents[1])
        # Threads of numpy's and torch's libraries must not spin while another process has its turn.
        environment = os.environ | {"OMP_NUM_THREADS": str(threads), "OMP_WAIT_POLICY": "PASSIVE"}
        if kind != PEER:
            environment["PYTHONPATH"] = os.pathsep.join(filter(None, (root, os.environ.get("PYTHONPATH"))))
        self.kind = kind
        self._process = subprocess.Popen(
            [str(python), str(RUNNER), kind, str(folder), net, str(threads)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment,
        )  # fmt: skip
        self._answer()

    def ask(self, what: object, batch: int) -> dict[str, Any]:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{what} {batch}\n")
        self._process.stdin.flush()
        return self._answer()

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None and self._process.stderr is not None
        line = self._process.stdout.readline()
        if not line:
            said = self._process.stderr.read().strip().splitlines()
            raise RuntimeError(f"{self.kind}: {said[-1] if said else 'ended'}")
        return json.loads(line)  # type: ignore[no-any-return]

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()


def peer_python() -> Path | None:
    """The interpreter that has onnxruntime-training, of $EDGEENGINE_ORT_TRAINING or of `make bench`; None where there is none."""
    given = os.environ.get("EDGEENGINE_ORT_TRAINING")
    python = Path(given) if given else Path(sys.prefix, "ort-training", "bin", "python")
    return python if python.exists() else None


@contextmanager
def prepared(net: str) -> Iterator[tuple[Path, str]]:
    """A folder with what the subjects of a net need, and why onnxruntime-training cannot be one of them ("" where it can)."""
    import torch

    from benchmarks.training_nets import CLASSES, NETS, made
    from edgeengine.cli.measuring import Measurer
    from edgeengine.cli.racing import Racer
    from edgeengine.gradients import Chooser, Request, build_trainable

    spec, module, rng = NETS[net], made(net).eval(), np.random.default_rng(0)
    with tempfile.TemporaryDirectory(prefix="edgeengine-") as name:
        folder = Path(name)
        example = torch.zeros(2, *spec.shape)
        for opset in (20, 17):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                torch.onnx.export(
                    module, (example,), folder / f"net{opset}.onnx", input_names=["x"], output_names=["y"],
                    dynamic_axes={"x": {0: "batch"}}, dynamo=False, opset_version=opset,
                    training=torch.onnx.TrainingMode.PRESERVE,
                )  # fmt: skip
        chooser = Chooser(Racer(Measurer({}).processor), spec.batch)
        request = Request(train="all", optimizer="sgd", update_statistics=spec.trains_norm, chooser=chooser)
        build_trainable(folder / "net20.onnx", folder / "net.edge", request, parts=1)
        x = rng.standard_normal((spec.batch, *spec.shape)).astype(np.float32)
        np.savez(folder / "batch.npz", x=x, label=rng.integers(0, CLASSES, spec.batch))
        yield folder, "builds no model in training form" if spec.trains_norm else _artifacts(folder, net)


def _artifacts(folder: Path, net: str) -> str:
    python = peer_python()
    if python is None:
        return "not installed here"
    done = subprocess.run(
        [str(python), str(RUNNER), "artifacts", str(folder), net, "1"], capture_output=True, text=True, check=False
    )
    return "" if done.returncode == 0 else (done.stderr.strip().splitlines() or ["failed"])[-1]


def rounds(subjects: Sequence[Subject], batch: int) -> dict[str, list[float]]:
    """Medians of blocks in milliseconds by kind, a number a round; the order of a round is another each time."""
    order, counts = np.random.default_rng(0), {}
    for s in subjects:
        counts[s.kind] = max(2, min(MOST_STEPS, round(BLOCK_NS / median(s.ask(3, batch)["ns"]))))
    found: dict[str, list[float]] = {s.kind: [] for s in subjects}
    for _ in range(ROUNDS):
        for i in order.permutation(len(subjects)):
            s = subjects[i]
            found[s.kind].append(median(s.ask(counts[s.kind], batch)["ns"]) / 1e6)
    return found


def measured(nets: Sequence[str], threads: Sequence[int]) -> list[harness.Row]:
    from benchmarks.training_nets import NETS

    rows = []
    for net in nets:
        spec = NETS[net]
        with prepared(net) as (folder, missing):
            for count in threads:
                with ExitStack() as stack:
                    kinds = ["ours", "torch", *([] if missing else [PEER])]
                    subjects = [Subject(kind, folder, net, count) for kind in kinds]
                    for s in subjects:
                        stack.callback(s.close)
                    if count == 1:
                        rows.append(_memory(net, spec.batch, subjects))
                    aim = spec.aim_percent if count == 1 else AIM_TWO_THREADS
                    rows += [_speed(net, b, count, aim, rounds(subjects, b), missing) for b in (spec.batch, 1)]
        print(".", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    return rows


def _speed(net: str, batch: int, threads: int, aim: int, ms: dict[str, list[float]], missing: str) -> harness.Row:
    """Our time in percent of the better peer's, a sample a round."""
    better = min((k for k in ms if k != "ours"), key=lambda k: median(ms[k]))
    percent = [100 * a / b for a, b in zip(ms["ours"], ms[better], strict=True)]
    times = ", ".join(f"{k} {median(v):.3g} ms" for k, v in ms.items())
    said = times + (f"; {PEER}: {missing}" if missing else "")
    return harness.Row(
        f"step, {net}, batch {batch}, {threads} thread{'s' * (threads > 1)}", f"% of {better}", percent, aim, note=said
    )


def _memory(net: str, batch: int, subjects: Sequence[Subject]) -> harness.Row:
    grown = {s.kind: s.ask("memory", batch)["bytes"] for s in subjects}
    times = ", ".join(f"{k} {v / 1e6:.1f} MB" for k, v in grown.items())
    return harness.Row(
        f"memory, {net}, batch {batch}", "% of torch", [100 * grown["ours"] / grown["torch"]], AIM_MEMORY, note=times
    )


def run() -> list[harness.Row]:
    """Per net, batch and number of threads. Nothing but a note where torch, the peer, is not installed."""
    try:
        from benchmarks.training_nets import NETS
    except ImportError:
        print("training: torch is not installed, so there is no peer to measure beside", file=sys.stderr)
        return []
    return measured(list(NETS), [1, 2] if harness.cores() > 1 else [1])


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.training", description=__doc__)
    parser.add_argument("nets", nargs="*", metavar="NET")
    parser.add_argument("--threads", type=int, action="append")
    parser.add_argument("--json", action="store_true", help="one JSON document on stdout")
    given = parser.parse_args()
    from benchmarks.training_nets import NETS

    unknown = [n for n in given.nets if n not in NETS]
    if unknown:
        parser.error(f"no net {unknown[0]!r}; choose from {', '.join(NETS)}")
    rows = measured(given.nets or list(NETS), given.threads or [1, 2])
    print(json.dumps(harness.document(rows), indent=1) if given.json else harness.table(rows))


if __name__ == "__main__":
    main()
