"""What accelerators made of models, kept: each (model, target, versions) is compiled once, in a child process.

A folder of the cache holds the verdict and, where the provider compiles ahead, the EP-context model that later sessions start
from. Its key covers everything that decides the result, the weights included: a fine-tuned or re-exported model is another key.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

import msgspec
import onnxruntime as ort

import edgeengine
from edgeengine.devices.providers.child import CONTEXT, VERDICT, Job, Verdict
from edgeengine.devices.providers.target import Target

RETRY_S = 600  # a crash, or a device that was not there, is believed this long; a clock that was set back ends it too
PROBE_TIMEOUT_S = 60
LIMIT_BYTES = 2_000_000_000


class Cache:
    """Compiled models under `folder`; the least recently used go when they take more than `limit_bytes`."""

    def __init__(self, folder: Path, limit_bytes: int = LIMIT_BYTES):
        self.folder, self.limit_bytes = folder, limit_bytes

    def get(
        self, model: Path, content: str, shapes: Mapping[str, tuple[int, ...]], target: Target, timeout_s: float | None = None
    ) -> tuple[Verdict, Path | None]:
        """The verdict on `model` on `target`, and its EP-context model if there is one; compiled now if it is not kept yet.

        `content` is a hash of the model with its weights.
        """
        about = (content, sorted(shapes.items()), msgspec.json.encode(target), ort.__version__, _stamp(target.library))
        place = self.folder / hashlib.sha256(repr(about).encode()).hexdigest()[:32]
        verdict = _read(place)
        if verdict is None or (verdict.error and abs(time.time() - verdict.at_s) > RETRY_S):
            verdict = self._compile(Job(str(model.absolute()), dict(shapes), target), place, timeout_s)
            self._prune(place)
        elif place.is_dir():
            os.utime(place)
        context = place / CONTEXT
        return verdict, context if context.is_file() else None

    def _compile(self, job: Job, place: Path, timeout_s: float | None) -> Verdict:
        """Run the child, keep what it leaves (aside, then renamed), whatever became of it."""
        self.folder.mkdir(parents=True, exist_ok=True)
        aside = Path(tempfile.mkdtemp(prefix=".", dir=self.folder))
        try:
            (aside / "job.json").write_bytes(msgspec.json.encode(job))
            failure = _run_child(aside / "job.json", timeout_s)
            verdict = _read(aside)
            if verdict is None:
                verdict = Verdict(error=failure or "the provider's process ended without a verdict")
            if verdict.error:
                verdict = msgspec.structs.replace(verdict, at_s=time.time())
                (aside / VERDICT).write_bytes(msgspec.json.encode(verdict))
                (aside / CONTEXT).unlink(missing_ok=True)
            shutil.rmtree(place, ignore_errors=True)
            try:
                aside.rename(place)
            except OSError:  # another process compiled the same meanwhile: its result is as good
                return _read(place) or verdict
            return verdict
        finally:
            shutil.rmtree(aside, ignore_errors=True)

    def _prune(self, but: Path) -> None:
        """Remove what was used longest ago until the limit holds, and never `but`."""
        used = [(at_s, size, place) for place in self.folder.iterdir() for at_s, size in _usage(place)]
        total = 0
        for _, size, place in sorted(used, reverse=True):
            total += size
            if total > self.limit_bytes and place != but:
                shutil.rmtree(place, ignore_errors=True)


def _run_child(job: Path, timeout_s: float | None) -> str:
    """What became of the process, "" where all went well."""
    command = [sys.executable, "-m", "edgeengine.devices.providers.child", str(job)]
    root = str(Path(edgeengine.__file__).parents[1])
    env = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, (root, os.environ.get("PYTHONPATH", ""))))}
    try:
        done = subprocess.run(
            command, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace", timeout=timeout_s,
            check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return f"the provider hung: no answer within {timeout_s:g} s"
    if done.returncode == 0:
        return ""
    if done.returncode < 0:
        return f"the provider crashed its process ({signal.Signals(-done.returncode).name})"
    last = (done.stderr.strip() or f"exit code {done.returncode}").splitlines()[-1]
    return f"the provider's process failed: {last}"


def _read(place: Path) -> Verdict | None:
    try:
        return msgspec.json.decode((place / VERDICT).read_bytes(), type=Verdict)
    except (OSError, msgspec.DecodeError):
        return None


def _usage(place: Path) -> list[tuple[float, int]]:
    """[(when it was used last, its bytes)], nothing for what is no result, or was removed by another process meanwhile."""
    try:
        return [(place.stat().st_mtime, sum(f.stat().st_size for f in place.iterdir()))] if (place / VERDICT).is_file() else []
    except FileNotFoundError:
        return []


def _stamp(library: str) -> str:
    """Changes when the plugin's library does."""
    if not library:
        return ""
    try:
        stat = os.stat(library)
    except OSError:
        return f"{library} is missing"
    return f"{library} {stat.st_size} {stat.st_mtime_ns}"
