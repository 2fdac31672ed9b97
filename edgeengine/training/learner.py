"""One bundle that learns: samples in, training steps, guarded versions out, all of it in the state folder.

What `learn` acknowledged is on the disk. Every step is a checkpoint: weights, optimizer state, steps, random state and the
samples' journal belong to one manifest, so that a kill at any moment loses at most the step under way, and a learner that
is opened again goes on bit for bit as if it had not stopped.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import count, repeat
from pathlib import Path
from typing import TypeVar

import msgspec
import numpy as np
import onnxruntime as ort

from edgeengine.bundle import Bundle
from edgeengine.errors import UserError
from edgeengine.spec.training import DER
from edgeengine.training.claim import Claim
from edgeengine.training.data import Examples
from edgeengine.training.graphs import StepRefused, StepResult
from edgeengine.training.guard import CHUNK, Guard, Verdict, Watchdog, finite, hits, lost_since
from edgeengine.training.journal import Journal
from edgeengine.training.methods import ClosedForm, GradientSteps, Method, Rehearsal
from edgeengine.training.samples import SampleSpec, SampleStore
from edgeengine.training.serving import inference_session
from edgeengine.training.state import Arrays, training_spec
from edgeengine.training.store import StateManifest, VersionRecord, VersionStore
from edgeengine.workload.learn import HELD, RUN

JOURNAL_BYTES = 4 << 20  # a longer journal is folded into the samples' file
REFUSALS = 3  # in a row, after which training starts again from what serves
_T = TypeVar("_T")
_replace = msgspec.structs.replace


@dataclass(frozen=True)
class Settings:
    """How a bundle learns. `method`: "head" solves the last layer, "gradients" trains what the bundle's graphs train.

    `store_bytes` of samples, floats in 16 bits with `half`. `margin` is what a new version may be worse, `weights` what a
    sample of a domain counts in a solved head. `steps_per_sample`: training stops when a new sample has had so many steps.
    """

    method: str = "head"
    store_bytes: int = 1 << 20
    half: bool = True
    margin: float = 0.02
    ridge: float = 1e-3
    weights: tuple[tuple[str, float], ...] = ()
    rehearsal: Rehearsal = field(default_factory=Rehearsal)
    steps_per_sample: float = 0.25
    seed: int = 0


@dataclass(frozen=True)
class Published:
    """`version` serves now, "" where nothing was published: `verdict` says why."""

    version: str
    verdict: Verdict


class Learner:
    """Opens or begins what a bundle has learned under the folder `state`. `learn` may be called beside one thread that trains.

    `session` is what serves; it is replaced as a whole. Raises UserError for a bundle that does not train, for a state
    of another bundle, method or budget, and where another process learns there.
    """

    def __init__(self, bundle: Bundle, state: Path, settings: Settings | None = None, threads: int = 1):
        self.bundle, self.settings, self._threads = bundle, settings or Settings(), threads
        self.spec = training_spec(bundle)
        self._claim = Claim(state / bundle.hash)
        self.disk = VersionStore(state, bundle)
        self.samples = SampleStore(sample_spec(bundle, self.settings.half), self.settings.store_bytes, self.settings.seed)
        self.method = make_method(bundle, self.settings, threads)
        self.output = bundle.manifest.outputs[0].name
        self.guard, self.watchdog = Guard(self.spec, self.output, self.settings.margin), Watchdog()
        self._lock = threading.RLock()  # of the samples and the manifest
        self._refused = 0  # versions in a row
        self._owed = 0.0  # steps that the samples have not had yet
        self.swapped: Callable[[str], None] = lambda name: None  # told of every change of what serves
        self._restore()
        self.session = inference_session(bundle, self.disk.version(self.serving), threads)
        self._fallback: ort.InferenceSession | None = None

    def close(self) -> None:
        """Let other processes learn there; nothing may be learned here afterwards. What was learned is on the disk already."""
        self._claim.release()

    # ---- state ----

    def _restore(self) -> None:
        manifest = self.disk.manifest
        if manifest.samples:
            self.samples.restore(self.disk.read(manifest.samples))
        found = self.disk.state()
        learned = 0
        if found is not None:
            tensors, learned = found
            self._take(tensors)
        self._journal = Journal(self.disk.folder / (manifest.journal or "journal-0.bin"))
        for arrays, domain, position in self._journal.read():
            self._apply(arrays, domain, position > learned)

    def _take(self, tensors: Arrays) -> None:
        own = dict(tensors)
        self._owed = float(own.pop("owed", np.array(0.0)))
        self.method.restore(own)

    def _state(self) -> Arrays:
        return self.method.tensors() | {"owed": np.array(self._owed)}

    @property
    def _learned(self) -> int:
        """The journal's position up to which the state has seen it; a method that takes each knows by itself."""
        return 0 if self.method.takes_each else self._journal.position

    def _apply(self, arrays: Arrays, domain: str, unseen: bool) -> range:
        flag, known = arrays["flags"].tolist()
        held = None if flag < 0 else bool(flag)
        inputs = {n.removeprefix("input:"): a for n, a in arrays.items() if n.startswith("input:")}
        added = self.samples.add(inputs, arrays["label"], domain=domain, held_back=held, logits=arrays.get("logits"))
        if unseen:
            fresh = Examples(inputs, arrays["label"]).pick(np.flatnonzero(~added.held_back))
            self.method.observe(fresh, domain)
            self._owed += 0 if known else self.settings.steps_per_sample * len(fresh)
        return added.numbers

    # ---- samples ----

    def learn(
        self,
        inputs: Mapping[str, np.ndarray],
        label: np.ndarray,
        *,
        domain: str = "user",
        held_back: bool | None = None,
        known: bool = False,
    ) -> range:
        """Take labelled samples, along the first axis; returns their numbers once they are safe on the disk.

        `known` samples show old skills: they are there to be rehearsed and to guard, and ask for no steps of their own.

        They are also what the serving version is watched by: it answers them before it learns from them, and goes back to
        the version before where that proves better. Raises UserError for what does not fit, and where the disk is full.
        """
        label = np.asarray(label)
        if label.dtype.kind in "iu":
            label = label.astype(self.samples.spec.label_dtype)
        self.samples.check(inputs, label)
        if not known:
            self._watch(Examples(dict(inputs), label))
        flags = np.array([-1 if held_back is None else int(held_back), known], np.int8)
        arrays = {f"input:{n}": a for n, a in inputs.items()} | {"label": label, "flags": flags}
        with self._lock:
            logits = self.method.logits(dict(inputs), label) if len(label) else None
            arrays |= {} if logits is None else {"logits": logits}
            try:
                self.disk.folder.mkdir(parents=True, exist_ok=True)
                self._journal.append(arrays, domain)
            except OSError as e:
                raise UserError(f"{self._journal.file}: cannot be written ({e}); free some space or give another --state") from e
            numbers = self._apply(arrays, domain, True)
            if self._journal.position > JOURNAL_BYTES and not self.busy:
                self.checkpoint()
        return numbers

    def delete(self, numbers: Iterable[int] = (), *, domain: str | None = None) -> int:
        """Delete samples by number or all of a domain, from memory and disk; how many were still stored.

        A solved head forgets a deleted domain altogether; weights trained by gradients keep what they learned.
        """
        with self._lock:
            found = self.samples.delete(numbers)
            if domain is not None:
                found += self.samples.delete_domain(domain)
                self.method.forget(domain)
            self._fold(forget=True)
        return found

    def checkpoint(self) -> None:
        """Fold the journal into the samples' file; what waits to be learned from is stepped through first."""
        with self._lock:
            self._fold(forget=False)

    def _fold(self, forget: bool) -> None:
        while self.method.waiting:
            for _ in self.method.micro_steps(self.samples):
                pass
        self.method.fold()
        manifest = self.disk.manifest
        number = next(i for i in count() if not (self.disk.folder / f"journal-{i}.bin").exists())
        journal = Journal(self.disk.folder / f"journal-{number}.bin")
        self.disk.commit(
            _replace(
                manifest,
                **self.disk.put_state(self._state(), 0),
                samples=self.disk.put(self.samples.tensors(), "samples"),
                journal=journal.file.name,
            ),
            forget=forget,
        )
        self._journal = journal

    # ---- training ----

    @property
    def busy(self) -> bool:
        """Whether samples wait to be learned from."""
        return self.method.waiting if self.method.takes_each else self._owed >= 1

    def train(self, steps: int) -> None:
        """Ask for so many more steps, on the samples that are kept; a solved head needs none. Raises UserError for none."""
        if not 1 <= steps <= 1_000_000:
            raise UserError(f"train: steps must be from 1 to 1,000,000, not {steps}")
        with self._lock:
            self._owed += steps

    def micro_steps(self) -> Iterator[StepResult | None]:
        """One training step, a micro-step per item; the last commits it. Giving it up before loses nothing."""
        steps = self.method.micro_steps(self.samples)
        while True:
            with self._lock:
                try:
                    result = next(steps)
                except StopIteration:
                    return
                except StepRefused:
                    self._owed = max(self._owed - 1, 0.0)  # it had its turn: a rate that explodes is not tried for ever
                    raise
                if result is not None:
                    self._owed = max(self._owed - 1, 0.0)
                    self.disk.keep(self._state(), self._learned)
            yield result

    def _commit(self, **changes: object) -> None:
        """Make versions and the present state safe, from a power cut as well."""
        state = self.disk.put_state(self._state(), self._learned)
        self.disk.commit(_replace(self.disk.manifest, journal=self._journal.file.name, **state, **changes))

    def step(self) -> StepResult | None:
        """One training step, at once; None where there is nothing to learn from. Raises StepRefused."""
        return _last(self.micro_steps())

    # ---- versions ----

    @property
    def serving(self) -> str:
        """The version in service, "" for the bundle itself."""
        return self.disk.manifest.serving

    @property
    def versions(self) -> tuple[VersionRecord, ...]:
        """Published versions, oldest first; those taken back have a cause."""
        return self.disk.manifest.versions

    @property
    def guard_parts(self) -> int:
        """Micro-steps of a guard, however few samples are held back: what follows is then always the same micro-step."""
        return -(-(self.samples.capacity * HELD // RUN) // CHUNK) + 1

    def publish_steps(self, load: Callable[[Arrays], None] | None = None) -> Iterator[Published | None]:
        """Make a version of the present weights and put it into service if the guard lets it pass: a micro-step per item.

        The first makes the session, `guard_parts` compare; then `load` is called with a version that passed, where it is
        given; the last swaps.
        """
        with self._lock:
            tensors, steps = self.method.version(), self.method.steps
            held, lost = self.guard.held(self.samples), lost_since(self.versions)
        session = inference_session(self.bundle, tensors, self._threads)
        yield None
        verdict: Verdict | None = None
        compared = 0
        for verdict in self.guard.compare(held, self.session, session, lost):
            if verdict is None:
                compared += 1
                yield None
        assert verdict is not None
        if verdict.passed:
            self._refused = 0
            if load is not None:
                yield from repeat(None, self.guard_parts - compared)
                load(tensors)
                yield None
            yield Published(self._swap(tensors, session, verdict, steps), verdict)
        else:
            self.refuse()
            yield Published("", verdict)

    def adopt_steps(self, tensors: Arrays, load: Callable[[Arrays], None] | None = None) -> Iterator[Published | None]:
        """Put a version made elsewhere into service, a micro-step per item: somebody's adapter, or {} for the bundle itself.

        No guard looks at it, it was chosen; it can be rolled back as any. Steps of gradients go on from it. Raises UserError
        for values that are not finite, and tensors that the bundle does not train.
        """
        if not finite(tensors):
            raise UserError(f"{self.bundle.path}: a version with values that are not finite does not serve")
        session = inference_session(self.bundle, tensors, self._threads)
        yield None
        if load is not None:
            yield from repeat(None, self.guard_parts)
            load(tensors)
            yield None
        verdict = Verdict({}, {}, "")
        name = self._swap(tensors, session, verdict, self.method.steps)
        with self._lock:
            self.method.restart(tensors)
        yield Published(name, verdict)

    def refuse(self) -> None:
        """Note a version or a step that was refused: after REFUSALS in a row training goes on from what serves."""
        self._refused += 1
        if self._refused == REFUSALS:
            with self._lock:
                self.method.restart(self.disk.version(self.serving))
                self._refused = 0

    def publish(self) -> Published:
        """`publish_steps` at once."""
        result = _last(self.publish_steps())
        assert result is not None
        return result

    def _swap(self, tensors: Arrays, session: ort.InferenceSession, verdict: Verdict, steps: int) -> str:
        with self._lock:
            manifest = self.disk.manifest
            name = self.disk.put(tensors)
            record = VersionRecord(name, steps, verdict.before, verdict.after)
            others = tuple(v for v in manifest.versions if v.name != name)
            fallback = manifest.serving if manifest.serving != name else manifest.fallback
            self._commit(serving=name, fallback=fallback, versions=(*others, record))
            self._fallback, self.session = self.session, session
            self.watchdog.reset()
        self.swapped(name)
        return name

    def rollback(self, cause: str = "rolled back") -> str:
        """Put the version before into service; returns its name, "" for the bundle itself.

        Raises UserError where none was published.
        """
        with self._lock:
            manifest = self.disk.manifest
            if not manifest.serving:
                raise UserError(f"{self.bundle.path}: the bundle itself serves; there is no version to take back")
            back = manifest.fallback
            session = self._fallback_session()
            records = tuple(_replace(v, cause=cause) if v.name == manifest.serving else v for v in manifest.versions)
            self.method.restart(self.disk.version(back))
            self._commit(serving=back, fallback="", versions=records)
            self.session, self._fallback = session, None
            self.watchdog.reset()
        self.swapped(back)
        return back

    def _fallback_session(self) -> ort.InferenceSession:
        if self._fallback is None:
            self._fallback = inference_session(self.bundle, self.disk.version(self.disk.manifest.fallback), self._threads)
        return self._fallback

    def _watch(self, examples: Examples) -> None:
        if not self.serving or not len(examples):
            return
        serving, fallback = (hits(s, self.spec, self.output, examples) for s in (self.session, self._fallback_session()))
        cause = self.watchdog.saw(serving, fallback)
        if cause:
            self.rollback(cause)


def _last(items: Iterator[_T | None]) -> _T | None:
    """Run through micro-steps; what the last one gave."""
    result = None
    for item in items:
        result = item
    return result


def sample_spec(bundle: Bundle, half: bool) -> SampleSpec:
    """The samples that a bundle learns from. Raises UserError for inputs whose batch is not their first axis alone."""
    spec = training_spec(bundle)
    inputs = {}
    for tensor in bundle.manifest.inputs:
        rest = tensor.shape[1:]
        if not tensor.shape or not all(isinstance(d, int) for d in rest):
            raise UserError(f"{bundle.path}: input {tensor.name!r} of shape {tensor.shape} has no free first axis over samples")
        inputs[tensor.name] = (tuple(int(d) for d in rest), tensor.dtype)
    if spec.loss == DER:
        return SampleSpec(inputs, (), "int64", spec.classes, half=half, logits=spec.classes)
    label = tuple(int(d) for d in spec.label.shape[1:] if isinstance(d, int))
    return SampleSpec(inputs, label, spec.label.dtype, spec.classes, half=half)


def make_method(bundle: Bundle, settings: Settings, threads: int = 1) -> Method:
    """Raises UserError for an unknown method."""
    if settings.method == "head":
        return ClosedForm(bundle, ridge=settings.ridge, weights=dict(settings.weights))
    if settings.method == "gradients":
        return GradientSteps(bundle, settings.rehearsal, threads)
    raise UserError(f"no way to learn {settings.method!r}; there are head, gradients")


def manifest_of(state: Path, bundle: Bundle) -> StateManifest:
    """What is kept for a bundle, without opening anything to learn with."""
    return VersionStore(state, bundle).manifest
