"""Build a bundle: cut a model, extract every candidate subgraph, verify all of them, write the folder in one step.

A bundle is written into a temporary sibling folder and renamed into place, so it is there whole or not at all. The same
model and arguments give the same bytes.
"""

from __future__ import annotations

import contextlib
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import msgspec
import numpy as np
import onnx
import onnxruntime

import edgeengine
from edgeengine.bundle import MANIFEST, WEIGHTS, Bundle, open_bundle, sha256
from edgeengine.errors import UserError
from edgeengine.graph.candidates import Candidates, write_candidates
from edgeengine.graph.child import run_in_child
from edgeengine.graph.fix import fitting, with_fixed
from edgeengine.graph.frontier import Segmentation
from edgeengine.graph.load import Model, load_model
from edgeengine.graph.shapes import output_specs
from edgeengine.graph.study import Study, study
from edgeengine.spec.bundle import SCHEMA, Exactness, Manifest

Progress = Callable[[str, float], None]


def build_bundle(
    model_path: str | Path,
    out: str | Path,
    *,
    parts: int | None = None,
    at: Sequence[Sequence[str]] | None = None,
    shapes: Mapping[str, Sequence[int]] | None = None,
    inputs: Mapping[str, np.ndarray] | None = None,
    fix: Mapping[str, np.ndarray] | None = None,
    preprocessing: Mapping[str, object] | None = None,
    progress: Progress | None = None,
) -> Bundle:
    """Cut the model at `model_path` into segments and write the bundle `out`, every candidate verified bit by bit.

    `parts` asks for that many segments, `at` for cuts after the given sets of tensors; without either it is up to four.
    `shapes` (input name -> dimensions) and `inputs` (input name -> value) say what to verify with; what they leave open is
    assumed and reported through `progress(text, share done)`. `fix` (input name -> value) makes inputs constant and folds
    what they decide (see `fix.py`). An existing bundle at `out` is replaced.

    Raises UserError for a model that cannot be loaded, run, cut so, or verified, and for an `out` that is no bundle.
    """
    tell = progress or (lambda text, share: None)
    target = _check_target(Path(out))
    if parts is not None and at is not None:
        raise UserError("give either a number of parts or the tensors to cut at, not both")
    tell("reading the model", 0.0)
    original = load_model(model_path)
    given = fitting(original, fix or {})
    with contextlib.ExitStack() as stack:
        model = stack.enter_context(with_fixed(original, given))
        tell("running the model once", 0.05)
        seen = study(model, shapes, inputs)
        _refuse_random(seen)
        for text in seen.tensors.assumed:
            tell(text, 0.2)
        segmentation = _cut(seen, parts, at)
        for text in segmentation.notes:
            tell(text, 0.2)
        folder = stack.enter_context(_written_aside(target))
        tell("extracting subgraphs", 0.25)
        candidates = write_candidates(seen, segmentation, folder)
        tell(f"verifying {len(candidates.subgraphs)} subgraphs", 0.4)
        job = candidates.verify_job(str(original.path) if given else "", given)
        exactness = run_in_child(job, seen.tensors.values | given, Exactness, str(model.path))
        tell("writing the manifest", 0.95)
        manifest = _manifest(original, candidates, exactness, given, dict(preprocessing or {}))
        (folder / MANIFEST).write_bytes(msgspec.json.format(msgspec.json.encode(manifest), indent=1) + b"\n")
    tell("done", 1.0)
    return open_bundle(target)


def _manifest(
    original: Model,
    candidates: Candidates,
    exactness: Exactness,
    fixed: Mapping[str, np.ndarray],
    preprocessing: dict[str, object],
) -> Manifest:
    seen, subgraphs = candidates.seen, candidates.subgraphs
    return Manifest(
        schema=SCHEMA,
        name=original.path.stem,
        source=original.path.name,
        source_sha256=original.sha256,
        tools={
            "edgeengine": edgeengine.__version__,
            "numpy": np.__version__,
            "onnx": onnx.__version__,
            "onnxruntime": onnxruntime.__version__,
        },
        ir_version=original.proto.ir_version,
        opset=original.opset,
        inputs=seen.tensors.inputs,
        outputs=output_specs(seen.flow, seen.tensors),
        shapes=seen.tensors.fixed,
        segments=candidates.segments,
        subgraphs=subgraphs,
        files={f: sha256(candidates.folder / f) for f in sorted({s.file for s in subgraphs} | {WEIGHTS})},
        exactness=exactness,
        preprocessing=preprocessing,
        fixed={name: np.array2string(value, threshold=8) for name, value in fixed.items()},
    )


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
    if target.is_symlink() or (target.exists() and not (target / MANIFEST).is_file()):
        raise UserError(f"{target}: exists and is no bundle; give another name or remove it")
    if not target.name:
        raise UserError(f"{target}: is no name for a bundle; give one like model.edge")
    return target


@contextlib.contextmanager
def _written_aside(target: Path) -> Iterator[Path]:
    """A temporary folder beside `target` that takes its place when the block succeeds, and is gone when it does not."""
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        folder = Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=target.parent))
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
