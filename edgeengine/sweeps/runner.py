"""Answer many points over worker processes (joblib), on this machine or on a Dask cluster; what is answered is kept at once."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import msgspec

import edgeengine
from edgeengine.errors import UserError
from edgeengine.sweeps.point import Answer, Question, answer
from edgeengine.sweeps.space import Point

BACKENDS = ("local", "dask")


def run_points(
    question: Question,
    wanted: Sequence[Point],
    *,
    workers: int = 1,
    backend: str = "local",
    cluster: str | None = None,
    kept: Path | None = None,
    progress: Callable[[float], None] | None = None,
) -> list[Answer]:
    """Answers in the order of `wanted`; they do not depend on workers or backend.

    `kept`: a file to which each answer is added as it comes, and from which those of an interrupted sweep are taken.
    `cluster`: the address of a Dask scheduler, None for one on this machine. Raises UserError for an unknown backend or one
    not installed.
    """
    done = _read(kept, question) if kept is not None else {}
    missing = [p for p in wanted if _key(question, p) not in done]
    with contextlib.ExitStack() as stack:
        out = stack.enter_context(kept.open("a")) if kept is not None else None
        for point, found in _answers(question, missing, workers, backend, cluster):
            key = _key(question, point)
            done[key] = found
            if out is not None:
                out.write(msgspec.json.encode({"key": key, "answer": found}).decode() + "\n")
                out.flush()
            if progress is not None:
                progress(1 - len([p for p in missing if _key(question, p) not in done]) / len(missing))
    return [done[_key(question, p)] for p in wanted]


def _answers(
    question: Question, wanted: Sequence[Point], workers: int, backend: str, cluster: str | None
) -> Iterator[tuple[Point, Answer]]:
    """In any order."""
    if backend not in BACKENDS:
        raise UserError(f"unknown backend {backend!r}; choose {' or '.join(BACKENDS)}")
    if backend == "local" and workers == 1:
        for point in wanted:
            yield point, answer(question, point)
        return
    try:
        import joblib

        if backend == "dask":
            import distributed
    except ImportError as e:
        raise UserError(f"--backend {backend} with several workers needs {e.name}: pip install 'edgeengine[sweep]'") from e
    with contextlib.ExitStack() as stack:
        if backend == "dask":
            here = {"n_workers": workers, "threads_per_worker": 1, "dashboard_address": None}
            where = {"address": cluster} if cluster else here
            try:
                stack.enter_context(distributed.Client(**where))  # type: ignore[no-untyped-call]
            except OSError as e:
                raise UserError(
                    f"no Dask scheduler answers at {cluster or 'this machine'} ({e}); start one, or leave out --cluster"
                ) from e
            stack.enter_context(joblib.parallel_config(backend="dask"))
        pool = joblib.Parallel(n_jobs=-1 if backend == "dask" else workers, return_as="generator_unordered")
        yield from pool(joblib.delayed(_pair)(question, p) for p in wanted)


def _pair(question: Question, point: Point) -> tuple[Point, Answer]:
    return point, answer(question, point)


def _key(question: Question, point: Point) -> str:
    about = [
        edgeengine.__version__, question.workload.sha256, question.device, question.policy, question.times, question.seconds,
        question.seed, question.seeds, question.max_miss, question.devices, point,
    ]  # fmt: skip
    return hashlib.sha256(msgspec.json.encode(about)).hexdigest()


def _read(file: Path, question: Question) -> dict[str, Answer]:
    """Answers of an earlier run; a last line cut short by an interruption is dropped."""
    if not file.exists():
        return {}
    found: dict[str, Answer] = {}
    text = file.read_text()
    whole = text[: text.rfind("\n") + 1]
    if whole != text:
        file.write_text(whole)
    for number, line in enumerate(whole.splitlines(), 1):
        try:
            entry = msgspec.json.decode(line)
            found[entry["key"]] = entry["answer"]
        except (msgspec.DecodeError, KeyError, TypeError) as e:
            raise UserError(f"{file}, line {number}: not a line of a sweep; give another file") from e
    return found
