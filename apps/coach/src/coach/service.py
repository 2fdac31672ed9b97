"""The path from the sensor to a decision: the engine under it, what is known of each decision, and how late it was."""

from __future__ import annotations

import json
import threading
import time
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from coach.carriers import carrier
from coach.config import Config
from coach.lessons import known
from coach.model import UNITS, Preprocessing, open_model
from coach.planned import BUDGET, planned
from coach.recordings import CHANNELS
from coach.repetitions import RepetitionCounter
from edgeengine.bundle import Bundle
from edgeengine.engine import Engine, JobResult
from edgeengine.engine.prepare import Budget
from edgeengine.errors import EdgeEngineError, UserError
from edgeengine.io import CallbackSink, SerialSensor, opened
from edgeengine.workload import Workload, parse_workload

TASK, LEARN, USER = "exercise", "learn", "user"
USER_WEIGHT = 3.0  # how much a window the wearer named counts beside one of the people the model was trained on
_REMEMBERED = 64  # windows of jobs that have not ended yet, and then some
_LATENCIES = 100_000
_FIRST_WINDOW_S = 5.0  # beyond the window's own length, until the sensor must have filled one


@dataclass(frozen=True)
class Decision:
    """One job's end. `label` is None unless it was met or late; then `latency_ns` is from the arrival of the window's last byte
    to here, `window` float32 [channels, n], `version` the weights that made it ("": the bundle's own).
    """

    index: int
    outcome: str
    cause: str
    at_ns: int
    label: str | None = None
    confidence: float = 0.0
    last_byte_ns: int | None = None
    latency_ns: int | None = None
    window: np.ndarray | None = None
    version: str = ""


@dataclass
class Tally:
    """What the run came to so far. Written by the sink's thread; readers see whole values."""

    outcomes: Counter[str] = field(default_factory=Counter)
    causes: Counter[str] = field(default_factory=Counter)
    latencies_ns: deque[int] = field(default_factory=lambda: deque(maxlen=_LATENCIES))
    repetitions: Counter[str] = field(default_factory=Counter)
    latest: Decision | None = None

    def latency_ms(self, share: float) -> float | None:
        """The sensor-to-action latency that `share` of the decisions kept within."""
        kept = np.array(self.latencies_ns)
        return float(np.quantile(kept, share)) / 1e6 if len(kept) else None


class WatchedSource:
    """The sensor, remembering for each job its window and when the window's last byte had come."""

    def __init__(self, sensor: SerialSensor, input: str):
        self._sensor, self._input = sensor, input
        self._seen: OrderedDict[int, tuple[np.ndarray, int | None]] = OrderedDict()
        self._lock = threading.Lock()

    def open(self) -> None:
        self._sensor.open()

    def close(self) -> None:
        self._sensor.close()

    def read(self, index: int, release_ns: int) -> dict[str, np.ndarray]:
        last_byte_ns = self._sensor.last_byte_ns  # before the window is taken: a sample in between makes us look later
        inputs = self._sensor.read(index, release_ns)
        with self._lock:
            self._seen[index] = (inputs[self._input][0], last_byte_ns)
            while len(self._seen) > _REMEMBERED:
                self._seen.popitem(last=False)
        return inputs

    def taken(self, index: int) -> tuple[np.ndarray, int | None] | None:
        with self._lock:
            return self._seen.pop(index, None)


class Coach:
    """Opens the port, the model and the plan, and then `running()`.

    Raises DeviceError for a port that cannot be opened, UserError for a configuration or a model that cannot be.
    """

    def __init__(
        self,
        config: Config,
        state: Path,
        note: Callable[[str], None] = lambda text: None,
        budget: Budget = BUDGET,
    ):
        self._budget = budget
        self.config = config
        self.bundle, self.about = open_model(config.model, state)
        self.sensor = make_sensor(config, self.about)
        self._source = WatchedSource(self.sensor, self.about.input)
        self._sink = CallbackSink(self._ended)
        self._workload = _workload(config, self.bundle)
        self._repetitions = RepetitionCounter(self.about.rate_hz)
        self._per_decision = config.period_ms / 1e3 * self.about.rate_hz
        self._counted = 0  # the last job whose window was looked through for repetitions
        self._engine: Engine | None = None
        self._state, self._note = state, note
        self._told: Callable[[Decision], None] = lambda decision: None
        self.tally = Tally()

    @contextmanager
    def running(self, told: Callable[[Decision], None] = lambda decision: None) -> Iterator[Coach]:
        """Decide once a period until left. `told` gets every decision, on a thread of its own.

        Raises DeviceError when the sensor sends nothing of use.
        """
        self._told = told
        with opened([self.sensor]):  # a wrong port is said before anything is measured
            self._note("the plan for this machine: measured at the first start")
            bundles = {TASK: self.bundle, LEARN: self.bundle}
            plan = planned(self._workload, bundles, self._state, self._budget)
            self._note(f"waiting for {self.about.window} samples from {self.config.port}")
            self.sensor.wait_ready(self.about.window / self.about.rate_hz + _FIRST_WINDOW_S)
            with Engine(
                self._workload,
                plan,
                bundles=bundles,
                sources={"watch": self._source},
                sinks={TASK: self._sink},
                state=self._state / "learned",
            ) as engine:
                self._engine = engine
                self._remind(engine)
                try:
                    yield self
                finally:
                    self._engine = None

    def name(self, window: np.ndarray, label: str) -> None:
        """Learn that `window`, float32 [channels, n], shows `label`; it is on the disk when this returns.

        Raises UserError where it cannot be kept.
        """
        assert self._engine is not None
        self._engine.learn(LEARN, {self.about.input: window[None]}, self.about.labels.index(label), domain=USER)

    def rollback(self) -> str:
        """The version before serves again; returns its name. Raises UserError where there is none."""
        assert self._engine is not None
        return self._engine.rollback()

    def named(self) -> Counter[str]:
        """How many windows the wearer has named so far, by label."""
        if self._engine is None:
            return Counter()
        counts = self._engine.learner(LEARN).samples.counts
        return Counter({self.about.labels[int(label)]: n for (label, domain), n in counts.items() if domain == USER})

    def _remind(self, engine: Engine) -> None:
        """What the model knew before it met the wearer, once: it must not be forgotten."""
        learner = engine.learner(LEARN)
        if len(learner.samples) or not self.config.known:
            return
        try:
            windows = known(self.about.left_out, self.about.labels, self._state / "recordings")
        except EdgeEngineError as e:
            self._note(f"learning from the wearer alone: {e}")
            return
        order = np.random.default_rng(0).permutation(len(windows.label))
        learner.learn({self.about.input: windows.values[order]}, windows.label[order], domain="known", known=True)

    def _ended(self, result: JobResult) -> None:
        now_ns = time.monotonic_ns()
        taken = self._source.taken(result.index)
        if not result.outputs or taken is None:
            self._repetitions.interrupted()
            decision = Decision(result.index, result.outcome, result.cause, now_ns)
        else:
            window, last_byte_ns = taken
            decision = self._decided(result, window, last_byte_ns, now_ns)
        tally = self.tally
        tally.outcomes[decision.outcome] += 1
        if decision.cause:
            tally.causes[decision.cause.split(":")[0]] += 1
        if decision.latency_ns is not None:
            tally.latencies_ns.append(decision.latency_ns)
        tally.latest = decision
        self._told(decision)

    def _decided(self, result: JobResult, window: np.ndarray, last_byte_ns: int | None, now_ns: int) -> Decision:
        logits = next(iter(result.outputs.values()))[0].astype(np.float64)
        shares = np.exp(logits - logits.max())
        best = int(logits.argmax())
        label = self.about.labels[best]
        new = round(self._per_decision * (result.index - self._counted))  # samples since the last window looked at
        self._counted = result.index
        self.tally.repetitions[label] += (
            self._repetitions.push(window[3:, -min(new, window.shape[1]) :].T) if new > 0 else 0
        )
        return Decision(
            result.index,
            result.outcome,
            result.cause,
            now_ns,
            label,
            float(shares[best] / shares.sum()),
            last_byte_ns,
            None if last_byte_ns is None else now_ns - last_byte_ns,
            window,
            result.version,
        )


def make_sensor(config: Config, about: Preprocessing) -> SerialSensor:
    """The sensor as the model was trained on it. Raises UserError for a model of other channels or units than a watch gives."""
    if about.channels != CHANNELS or about.units != UNITS:
        raise UserError(
            f"the model wants {about.channels} in {about.units}; this app's sensors give {CHANNELS} in {UNITS}"
        )
    carries = carrier(config.framing)
    return SerialSensor(
        config.port,
        input=about.input,
        framing=config.framing,
        baudrate=config.baudrate or carries.baudrate,
        parity=carries.parity,
        rate_hz=about.rate_hz * config.speed,
        window=about.window,
        gap_s=config.gap_s,
        **(carries.sensor or {}),
    )


def _workload(config: Config, bundle: Bundle) -> Workload:
    """Times run `speed` times faster; the deadline does not: it is that of the wearer."""
    model = json.dumps(str(bundle.path.absolute()), ensure_ascii=False)
    text = f"""
[[task]]
name = "{TASK}"
model = {model}
period_ms = {config.period_ms / config.speed}
deadline_ms = {config.deadline_ms}
criticality = "high"
inputs = "source:watch"

[[task]]
name = "{LEARN}"
kind = "train"
model = {model}
learn = {{ method = "head", weights = {{ {USER} = {USER_WEIGHT} }} }}
"""
    return parse_workload(text.encode())
