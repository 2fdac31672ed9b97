"""ONNX Runtime sessions as every provider here makes them: known options only, one thread count, no spinning, what was assigned.

ONNX Runtime takes a misspelt session key or provider option without a word, and does not do what it should have said: both are
refused here.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np
import onnxruntime as ort

from edgeengine.devices.providers.base import Tensors
from edgeengine.devices.providers.trace import Tracing, time_share
from edgeengine.errors import DeviceError, UserError
from edgeengine.spec import Fallback, Placement

CPU = "CPUExecutionProvider"
RECORD = "session.record_ep_graph_assignment_info"
# Session configuration entries that may be given (onnxruntime_session_options_config_keys.h of ONNX Runtime 1.32).
SESSION_KEYS = frozenset({
    "ep.context_embed_mode", "ep.context_enable", "ep.context_file_path", "session.disable_cpu_ep_fallback",
    "session.disable_model_compile", "session.disable_prepacking", "session.disable_quant_qdq", "session.dynamic_block_base",
    "session.enable_quant_qdq_cleanup", "session.force_spinning_stop", "session.inter_op.allow_spinning",
    "session.intra_op.allow_spinning", "session.intra_op_thread_affinities", "session.qdqisint8allowed", RECORD,
    "session.set_denormal_as_zero", "session.use_device_allocator_for_initializers", "session.use_env_allocators",
    "optimization.disable_specified_optimizers", "optimization.enable_gelu_approximation",
})  # fmt: skip


def check_names(given: Iterable[str], known: Iterable[str], what: str) -> None:
    """Raises UserError for a name that is not known, with the nearest one that is."""
    known = sorted(known)
    for name in given:
        if name not in known:
            near = difflib.get_close_matches(name, known, 1)
            hint = f"did you mean {near[0]!r}?" if near else f"known: {', '.join(known) or 'none'}"
            raise UserError(f"{what} {name!r} is unknown; {hint}")


def session_options(
    threads: int = 1, entries: Mapping[str, str] | None = None, dims: Mapping[str, int] | None = None, severity: int = 4
) -> ort.SessionOptions:
    """Options of a session that brings no thread but its own and never spins.

    `entries` are session configuration entries, `dims` fix free dimensions by name. `severity`: the least that is logged; what
    fails is raised, and need not be. Raises UserError for an unknown key.
    """
    check_names(entries or (), SESSION_KEYS, "session option")
    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.log_severity_level = severity
    spin = {"session.intra_op.allow_spinning": "0", "session.inter_op.allow_spinning": "0"}
    for key, value in {**spin, RECORD: "1", **(entries or {})}.items():
        options.add_session_config_entry(key, value)
    for name, size in (dims or {}).items():
        options.add_free_dimension_override_by_name(name, size)
    return options


def create(file: Path, options: ort.SessionOptions, providers: Sequence[object] | None = None) -> ort.InferenceSession:
    """The session. `providers` as InferenceSession takes them, None where `options` name devices. Raises DeviceError.

    ONNX Runtime's own retry on the CPU when a provider fails, at creation or run, is off: it only prints a line.
    """
    try:
        return ort.InferenceSession(str(file), options, providers=providers, enable_fallback=0)
    except Exception as e:  # ONNX Runtime's errors have no common base below Exception
        raise DeviceError(f"{file}: ONNX Runtime cannot load it: {first_line(e)}") from e


class Session:
    """An Executable. Outputs are fresh arrays at every run, owned by whoever reads them.

    `tracing` makes the same session with a trace; without it a session of several providers does not know its time share.
    """

    def __init__(self, file: Path, session: ort.InferenceSession, placement: Placement, tracing: Tracing | None = None):
        self._file, self._session, self._tracing = file, session, tracing
        self.placement: Placement | None = placement
        self._inputs = [i.name for i in session.get_inputs()]
        self._outputs = [o.name for o in session.get_outputs()]

    def begin(self) -> Run:
        return Run(self)

    def run(self, feeds: Tensors, options: ort.RunOptions | None = None) -> Tensors:
        try:
            outputs: list[np.ndarray] = self._session.run(self._outputs, {n: feeds[n] for n in self._inputs}, options)
        except KeyError as e:
            raise UserError(f"{self._file.name}: input {e.args[0]!r} was not given") from e
        except Exception as e:
            raise DeviceError(f"{self._file.name}: run failed: {first_line(e)}") from e
        return dict(zip(self._outputs, outputs, strict=True))

    def time_share(self, feeds: Tensors) -> dict[str, float] | None:
        """See Traceable. Raises DeviceError where the traced session cannot be made or run."""
        alone = list(self.placement.nodes) if self.placement is not None else []
        if len(alone) == 1:
            return {alone[0]: 1.0}
        if self._tracing is None:
            return None
        given = {n: feeds[n] for n in self._inputs}
        try:
            return time_share(self._tracing, lambda session: session.run(self._outputs, given)) or None
        except Exception as e:  # ONNX Runtime's errors have no common base below Exception
            raise DeviceError(f"{self._file.name}: cannot be traced: {first_line(e)}") from e


class Run:
    """One run of a session, which another thread may cut short between two nodes. The options are its own: `terminate` holds for
    every later run that is given the same.
    """

    __slots__ = ("_options", "_session")

    def __init__(self, session: Session):
        self._session, self._options = session, ort.RunOptions()

    def run(self, feeds: Tensors) -> Tensors:
        return self._session.run(feeds, self._options)

    def terminate(self) -> None:
        self._options.terminate = True


def placement_of(session: ort.InferenceSession, asked: str, log: Sequence[str] = ()) -> Placement:
    """What `session` (made with RECORD) assigned where. `log`: the lines of its creation at the most verbose level, if any."""
    nodes: dict[str, int] = {}
    fallen: dict[tuple[str, str, str], list[str]] = {}
    reasons = _reasons(log)
    for part in session.get_provider_graph_assignment_info():
        for node in part.get_nodes():
            nodes[part.ep_name] = nodes.get(part.ep_name, 0) + 1
            if part.ep_name != asked:
                op = node.op_type if node.domain in ("", "ai.onnx") else f"{node.domain}:{node.op_type}"
                reason = reasons.get((node.op_type, node.name), "")
                fallen.setdefault((op, part.ep_name, reason), []).append(node.name or f"unnamed {op}")
    fallback = tuple(Fallback(op, tuple(names), provider, reason) for (op, provider, reason), names in fallen.items())
    return Placement(asked, nodes, fallback, copies=sum(int(n) for line in log for n in _MEMCPY.findall(line)))


_MEMCPY = re.compile(r"^(\d+) Memcpy nodes are added to the graph")
_REFUSED = re.compile(r"Validation FAILED .*?\n(?P<nodes>(?:\tOperator type: .*\n)+)\tREASON : (?P<reason>.*)")
_REPEATED = re.compile(r"(?<=\.)\w+ node `.*")  # the node once more, and that it was not assigned
_NODE = re.compile(r"\tOperator type: (\S+) Node name: (.*?) Node index: \d+")


def _reasons(log: Sequence[str]) -> dict[tuple[str, str], str]:
    """(operator, node) -> why a provider refused it, as its own log says."""
    found = {}
    for line in log:
        for refused in _REFUSED.finditer(line):
            for op, name in _NODE.findall(refused["nodes"]):
                found[op, name] = _REPEATED.sub("", refused["reason"].strip())
    return found


def first_line(error: BaseException) -> str:
    return str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
