"""Sessions made and run once in processes of their own: what one adds to a process, and whether it survives there.

`python -m edgeengine.profiling.isolated JOB`: JOB is a folder with job.json and the tensors of each bundle. The process imports
the runtime and then forks once per candidate, so that each starts from the same memory; in the process that measures, a session
would be given what others left behind. A provider that crashes there ends the child, not the profile.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec
import numpy as np

import edgeengine
from edgeengine.bundle import MANIFEST, Bundle
from edgeengine.devices.providers import load_providers
from edgeengine.devices.providers.base import Tensors
from edgeengine.errors import EdgeEngineError, InternalError
from edgeengine.profiling.candidate import Candidate
from edgeengine.spec import Manifest, Processor

SMAPS = Path("/proc/self/smaps")


class Isolated(NamedTuple):
    """`resident_bytes`: what the session and one run of it added, None where unreadable; `reason`: why it failed, "" if not."""

    resident_bytes: int | None
    reason: str = ""


class _Job(NamedTuple):
    bundle: str
    hash: str
    subgraph: str
    processor: Processor


def isolated(candidates: Sequence[Candidate], tensors: dict[str, Tensors]) -> list[Isolated]:
    """One for each candidate, in order. Where the system cannot fork, nothing is known of any.

    Processors that differ only in the core they use (core 0, core 1) make the same session: it is made once. On emulated ones,
    whose memory says nothing, none is made.
    """
    real = [c for c in candidates if not c.processor.emulated]
    found = iter(_isolated(real, tensors) if real and hasattr(os, "fork") else [Isolated(None)] * len(real))
    return [Isolated(None) if c.processor.emulated else next(found) for c in candidates]


def _isolated(candidates: Sequence[Candidate], tensors: dict[str, Tensors]) -> list[Isolated]:
    keys = [(*c.unit, c.processor.provider, c.processor.kind, c.processor.threads) for c in candidates]
    first = {key: i for i, key in reversed(list(enumerate(keys)))}
    jobs = {i: _Job(str(c.bundle.path), c.bundle.hash, c.subgraph.name, c.processor) for i, c in enumerate(candidates)}
    with tempfile.TemporaryDirectory(prefix="edgeengine-") as name:
        folder = Path(name)
        (folder / "job.json").write_bytes(msgspec.json.encode([jobs[i] for i in first.values()]))
        for bundle in {c.bundle.hash for c in candidates}:
            _save(folder / f"{bundle}.npz", tensors[bundle])
        path = os.pathsep.join(filter(None, (str(Path(edgeengine.__file__).parents[1]), os.environ.get("PYTHONPATH", ""))))
        done = subprocess.run(
            [sys.executable, "-m", "edgeengine.profiling.isolated", name],
            env=os.environ | {"PYTHONPATH": path}, stdin=subprocess.DEVNULL, capture_output=True, check=False,
        )  # fmt: skip
        if done.returncode:
            last = (done.stderr.decode(errors="replace").strip().splitlines() or ["no message"])[-1]
            raise InternalError(f"measuring sessions in isolation ended with {done.returncode}: {last}")
        found = dict(zip(first, msgspec.json.decode((folder / "result.json").read_bytes(), type=list[Isolated]), strict=True))
    return [found[key] for key in keys]


def _save(file: Path, tensors: Tensors) -> None:
    """Strings go as fixed-width text: numpy would pickle objects."""
    arrays = {f"v{i}": a.astype(str) if a.dtype == object else a for i, a in enumerate(tensors.values())}
    np.savez(file, names=np.array(list(tensors), dtype=str), **arrays)  # type: ignore[arg-type]


def _load(file: Path) -> Tensors:
    with np.load(file, allow_pickle=False) as archive:
        arrays = [archive[f"v{i}"] for i in range(len(archive["names"]))]
        names = archive["names"].tolist()
    return {n: a.astype(object) if a.dtype.kind == "U" else a for n, a in zip(names, arrays, strict=True)}


def main(folder: Path) -> None:
    jobs = msgspec.json.decode((folder / "job.json").read_bytes(), type=list[_Job])
    tensors = {job.hash: _load(folder / f"{job.hash}.npz") for job in jobs}
    manifests = {b: msgspec.json.decode((Path(b) / MANIFEST).read_bytes(), type=Manifest) for b in {j.bundle for j in jobs}}
    found = [_forked(Candidate(_bundle(j, manifests), manifests[j.bundle].subgraph(j.subgraph), j.processor), tensors[j.hash])
             for j in jobs]  # fmt: skip
    (folder / "result.json").write_bytes(msgspec.json.encode(found))


def _bundle(job: _Job, manifests: dict[str, Manifest]) -> Bundle:
    return Bundle(Path(job.bundle), job.hash, manifests[job.bundle])


def _forked(candidate: Candidate, tensors: Tensors) -> Isolated:
    """The candidate in a fork of this process, which has but one thread."""
    read, write = os.pipe()
    child = os.fork()
    if not child:
        os.close(read)
        with open(write, "wb") as out:
            out.write(msgspec.json.encode(_loaded(candidate, tensors)))
        os._exit(0)  # no clean-up of what is the parent's
    os.close(write)
    with open(read, "rb") as pipe:
        answer = pipe.read()
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        return Isolated(None, f"the process that ran it was ended by {signal.Signals(os.WTERMSIG(status)).name}")
    if not answer:
        return Isolated(None, f"the process that ran it ended with {os.waitstatus_to_exitcode(status)}")
    return msgspec.json.decode(answer, type=Isolated)


def _loaded(candidate: Candidate, tensors: Tensors) -> Isolated:
    before = resident_bytes()
    try:
        provider = load_providers()[candidate.processor.provider]
        executable = provider.load(candidate.bundle, candidate.step, candidate.processor)
        executable.run(tensors)
    except (EdgeEngineError, MemoryError, KeyError) as e:
        return Isolated(None, " ".join(str(e).split()) or type(e).__name__)
    after = resident_bytes()
    return Isolated(None if before is None or after is None else max(after - before, 0))


def resident_bytes(smaps: Path = SMAPS) -> int | None:
    """Memory of this process that is resident, program code left out: that is there once, whatever is loaded.

    None where it cannot be read. Source: proc(5), /proc/pid/smaps.
    """
    total, code = 0, False
    try:
        with smaps.open() as lines:
            for line in lines:
                fields = line.split()
                if not fields[0].endswith(":"):  # "7f…-7f… r-xp 00000000 08:01 1234 /usr/lib/libc.so.6"
                    code = len(fields) > 5 and (".so" in fields[5] or "x" in fields[1])
                elif fields[0] == "Rss:" and not code:
                    total += int(fields[1]) * 1024
    except OSError:
        return None
    return total


if __name__ == "__main__":
    main(Path(sys.argv[1]))
