"""Build a bundle: cut a model, extract candidate subgraphs, verify all of them, write the folder in one step.

A bundle is written into a temporary sibling folder and renamed into place, so it is there whole or not at all. The same
model and arguments give the same bytes, unless the cut was measured.
"""

from __future__ import annotations

import contextlib
import glob
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import msgspec
import numpy as np

from edgeengine.bundle import MANIFEST, Bundle, open_bundle
from edgeengine.errors import UserError
from edgeengine.graph.candidates import CANDIDATES, Writer, ranges
from edgeengine.graph.child import run_in_child
from edgeengine.graph.fix import fitting, with_fixed
from edgeengine.graph.frontier import Segmentation
from edgeengine.graph.lattice import Limits
from edgeengine.graph.load import load_model
from edgeengine.graph.manifest import encode, manifest_of
from edgeengine.graph.measured import Measure, Timer
from edgeengine.graph.probed import Left, by_probe
from edgeengine.graph.study import Study, study
from edgeengine.graph.weights import Weights
from edgeengine.spec.bundle import Exactness
from edgeengine.spec.training import TrainingSpec

Progress = Callable[[str, float], None]
# Writes more graphs over the same weights into the folder of a bundle, and says what they are.
Addition = Callable[[Study, Weights, Path], TrainingSpec]


def build_bundle(
    model_path: str | Path,
    out: str | Path,
    *,
    parts: int | None = None,
    at: Sequence[Sequence[str]] | None = None,
    max_part_ms: float | None = None,
    left: Left | None = None,
    measure: Measure | None = None,
    budget: int = CANDIDATES,
    limits: Limits | None = None,
    shapes: Mapping[str, Sequence[int]] | None = None,
    inputs: Mapping[str, np.ndarray] | None = None,
    fix: Mapping[str, np.ndarray] | None = None,
    preprocessing: Mapping[str, object] | None = None,
    addition: Addition | None = None,
    progress: Progress | None = None,
) -> Bundle:
    """Cut the model at `model_path` into segments and write the bundle `out`, every candidate verified bit by bit.

    `parts` asks for that many segments, `at` for cuts after the given sets of tensors, `max_part_ms` for as few segments
    as possible with none over that time; without any it is up to four. `measure` (see `measured.py`) balances `parts` by
    measured time, and `max_part_ms` needs it; at most `budget` subgraphs are measured, and as many written. `left` (see
    `probed.py`) asks for a cut at what a processor takes. `limits` bound what a boundary may carry.

    `shapes` (input name -> dimensions) and `inputs` (input name -> value) say what to verify with; what they leave open is
    assumed and reported through `progress(text, share done)`. `fix` (input name -> value) makes inputs constant and folds
    what they decide (see `fix.py`). `addition` writes training graphs beside the subgraphs. An existing bundle at `out` is
    replaced.

    Raises UserError for a model that cannot be loaded, run, cut so, or verified, and for an `out` that is no bundle.
    """
    tell = progress or (lambda text, share: None)
    target = _check_target(Path(out))
    _check_ways(parts, at, max_part_ms, left, measure, budget)
    tell("reading the model", 0.0)
    original = load_model(model_path)
    given = fitting(original, fix or {})
    with contextlib.ExitStack() as stack:
        model = stack.enter_context(with_fixed(original, given))
        tell("running the model once", 0.05)
        seen = study(model, shapes, inputs, limits)
        _refuse_random(seen)
        for text in seen.tensors.assumed:
            tell(text, 0.2)
        # What can be refused without writing is.
        segmentation = _cut(seen, parts, at) if max_part_ms is None and left is None else None
        folder = stack.enter_context(_written_aside(target))
        tell("extracting subgraphs", 0.2)
        writer = Writer(seen, folder)
        training = addition(seen, writer.weights, folder) if addition is not None else None
        if left is not None:
            tell("asking the processor what it takes", 0.25)
            segmentation = by_probe(original, writer, left)
        elif measure is not None and at is None and (parts is not None or max_part_ms is not None):
            tell("measuring cuts", 0.25)
            timer = Timer(original, seen.cuts, writer, measure, budget)
            segmentation = timer.by_limit(max_part_ms * 1e6) if max_part_ms is not None else timer.by_count(parts or 1)
        assert segmentation is not None
        for text in segmentation.notes:
            tell(text, 0.3)
        count = len(segmentation.segments)
        candidates = writer.write(segmentation, ranges(count, budget))
        every = count * (count + 1) // 2
        tell(f"verifying {len(candidates.subgraphs)} of {every} candidate subgraphs (budget {budget})", 0.4)
        job = candidates.verify_job(str(original.path) if given else "", given)
        exactness = run_in_child(job, seen.tensors.values | given, Exactness, str(model.path))
        tell("writing the manifest", 0.95)
        (folder / MANIFEST).write_bytes(encode(manifest_of(original, candidates, exactness, given, preprocessing, training)))
    tell("done", 1.0)
    return open_bundle(target)


def _check_ways(
    parts: int | None, at: object | None, max_part_ms: float | None, left: Left | None, measure: Measure | None, budget: int
) -> None:
    if sum(way is not None for way in (parts, at, max_part_ms, left)) > 1:
        raise UserError(
            "give one of a number of parts, the tensors to cut at, the longest time of a part and a processor, not both"
        )
    if max_part_ms is not None and not max_part_ms > 0:
        raise UserError(f"a part of {max_part_ms} ms: give a time above 0")
    if max_part_ms is not None and measure is None:
        raise UserError("the longest time of a part needs measuring: pass measure")
    if budget < 1:
        raise UserError(f"a budget of {budget} subgraphs: give at least 1")


def _cut(seen: Study, parts: int | None, at: Sequence[Sequence[str]] | None) -> Segmentation:
    if at is not None:
        return seen.cuts.by_tensors(at)
    return seen.cuts.by_default() if parts is None else seen.cuts.by_count(parts)


def _refuse_random(seen: Study) -> None:
    random = seen.flow.random_nodes()
    if random:
        raise UserError(
            f"{seen.flow.model.path}: node {seen.flow.label(random[0])} draws random numbers, so no two runs can be "
            f"compared; export the model for inference, without sampling"
        )


def _check_target(target: Path) -> Path:
    """Only a bundle may be replaced, and only one that holds nothing else: the whole folder goes."""
    if target.is_symlink() or (target.exists() and not _holds_only_a_bundle(target)):
        raise UserError(f"{target}: exists and is no bundle, or holds other files too; give another name or remove it")
    if not target.name:
        raise UserError(f"{target}: is no name for a bundle; give one like model.edge")
    return target


def _holds_only_a_bundle(folder: Path) -> bool:
    try:
        manifest = msgspec.json.decode((folder / MANIFEST).read_bytes(), type=dict[str, object])
    except (OSError, msgspec.DecodeError):
        return False
    listed = manifest.get("files")
    if "segments" not in manifest or not isinstance(listed, dict):
        return False
    found = {f.relative_to(folder).as_posix() for f in folder.rglob("*") if not f.is_dir()}
    return found <= {MANIFEST, *listed}


def _sweep(target: Path) -> None:
    """Remove what builds of `target` left behind whose process was killed."""
    prefix = f".{target.name}."
    for left in target.parent.glob(f"{glob.escape(prefix)}*"):
        pid = left.name.removeprefix(prefix).partition(".")[0]
        if pid.isdigit() and int(pid) != os.getpid() and not _is_alive(int(pid)):
            shutil.rmtree(left, ignore_errors=True)


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True  # someone else's
    return True


@contextlib.contextmanager
def _written_aside(target: Path) -> Iterator[Path]:
    """A temporary folder beside `target` that takes its place when the block succeeds, and is gone when it does not."""
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        _sweep(target)
        folder = Path(tempfile.mkdtemp(prefix=f".{target.name}.{os.getpid()}.", dir=target.parent))
    except OSError as e:
        raise UserError(f"{target}: cannot be written ({e.strerror}); choose another place") from e
    retired = folder.with_name(folder.name + ".old")
    try:
        folder.chmod(0o755)
        yield folder
        if target.exists():
            target.rename(retired)
        try:
            folder.rename(target)
        except OSError:
            if retired.exists():
                retired.rename(target)
            raise
    except OSError as e:
        raise UserError(f"{target}: cannot be written ({e}); free some space or choose another place") from e
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        shutil.rmtree(retired, ignore_errors=True)
