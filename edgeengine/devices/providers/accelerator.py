"""Execution providers other than the CPU's: what one looks like as a table row, and the provider made of it.

Nothing is loaded into this process before a child process has been through it: a driver may crash where it should refuse.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import onnxruntime as ort

from edgeengine.bundle import WEIGHTS, Bundle, sha256
from edgeengine.devices.providers.base import Executable, subgraph_file
from edgeengine.devices.providers.compiled import PROBE_TIMEOUT_S, Cache
from edgeengine.devices.providers.ort import Session, check_names, create, first_line, session_options
from edgeengine.devices.providers.smallest import smallest_model
from edgeengine.devices.providers.target import Target, ask, quiet_stdout
from edgeengine.devices.providers.trace import traced
from edgeengine.errors import DeviceError, UserError
from edgeengine.spec import Placement, Processor, Step, SubgraphSpec
from edgeengine.state import state_folder

Options = tuple[tuple[str, str], ...]  # as in Processor


@dataclass(frozen=True)
class Place:
    """Where a provider may run: `name` of the processor, its `kind` (gpu | npu), options always given.

    `paths`: options that are files, by the package's entry function that names the file.
    """

    name: str
    kind: str
    options: Mapping[str, str] = field(default_factory=dict)
    paths: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Row:
    """An execution provider. `package` is the import name of its plugin package, "" where it is built into ONNX Runtime.

    `known`: the provider options that may be given. `static`, `context`: see Target.
    """

    provider: str
    places: tuple[Place, ...]
    package: str = ""
    known: frozenset[str] = frozenset()
    static: bool = False
    context: bool = False

    @property
    def installed(self) -> bool:
        if self.package:
            return importlib.util.find_spec(self.package) is not None
        return self.provider in ort.get_available_providers()


class Accelerator:
    """The Provider of a row.

    `options` by processor name: provider options and session entries ("session.…", "ep.…") added to the row's; they go with the
    processors discovered, and a processor's own are used wherever it is loaded on. `cache`: where compiled models are kept,
    default the state folder's. Raises UserError for an unknown or misspelt option.
    """

    def __init__(self, row: Row, options: Mapping[str, Mapping[str, str]] | None = None, cache: Path | None = None):
        self.name, self._row, self._cache = row.provider, row, cache
        self._sessions: dict[tuple[Path, str, Options], Session] = {}
        self._lock = threading.Lock()
        self._given = {place.name: tuple(sorted((options or {}).get(place.name, {}).items())) for place in row.places}
        for given in self._given.values():
            _separate(row, given)

    def discover(self, cores: tuple[int, ...]) -> list[Processor]:
        if not self._row.installed:
            return []
        return [p for place in self._row.places for p in self._processors(place, cores)]

    def _processors(self, place: Place, cores: tuple[int, ...]) -> list[Processor]:
        """One per hardware device; one that says why where there is none."""
        host = cores[-1] if cores else None
        try:
            model = smallest_model(self._kept().folder)
            content = hashlib.sha256(model.read_bytes()).hexdigest()
            verdict, _ = self._kept().get(model, content, {}, self._target(place, 0), PROBE_TIMEOUT_S)
            reason, devices, emulated = verdict.error, verdict.devices, verdict.emulated
            if not reason and self.name not in (verdict.placement.nodes if verdict.placement else {}):
                reason = "it took no node of a model that every accelerator can run"
        except (DeviceError, UserError) as e:
            reason, devices, emulated = str(e), 0, False
        except OSError as e:  # the cache's disk is full
            reason, devices, emulated = f"{self._kept().folder}: {e.strerror}", 0, False
        emulated = emulated and not reason
        resources = [f"{place.kind}{i or ''}" for i in range(max(devices, 1))]
        return [
            Processor(
                f"{place.name}{i or ''}", place.kind, self.name, (resource, *([f"core{host}"] if emulated else [])), host,
                emulated=emulated, usable=not reason, reason=reason, options=self._given[place.name],
            )
            for i, resource in enumerate(resources)
        ]  # fmt: skip

    def load(self, bundle: Bundle | None, step: Step, processor: Processor) -> Executable:
        file = subgraph_file(bundle, step)
        assert bundle is not None  # subgraph_file refused None
        key = (file, processor.name, processor.options)
        with self._lock:
            if key not in self._sessions:
                self._sessions[key] = self._session(bundle, step, file, processor)
            return self._sessions[key]

    def _session(self, bundle: Bundle, step: Step, file: Path, processor: Processor) -> Session:
        target = self._target(*self._place(processor.name), processor.options)
        spec = bundle.manifest.subgraph(step.subgraph)
        shapes = {t.name: t.dims for t in spec.inputs if t.is_static}
        verdict, context = self._kept().get(file, _content(bundle, spec), shapes, target)
        if verdict.error or verdict.placement is None:
            raise DeviceError(f"{step.subgraph} of {bundle.path} cannot be loaded on {processor.name}: {verdict.error}")
        dims = {} if context else verdict.dims

        def make(trace: Path | None = None) -> ort.InferenceSession:
            options = session_options(entries=target.entries, dims=dims)
            if trace is not None:
                traced(options, trace)
            with quiet_stdout():
                return create(context or file, options, ask(target, options))

        session = make()
        _require(session, verdict.placement, file)
        return Session(file, session, verdict.placement, make)

    def close(self) -> None:
        with self._lock:
            self._sessions.clear()

    def _kept(self) -> Cache:
        return Cache(self._cache if self._cache is not None else state_folder() / "cache")

    def _place(self, processor: str) -> tuple[Place, int]:
        for place in self._row.places:
            index = processor.removeprefix(place.name)
            if processor.startswith(place.name) and (index == "" or index.isdigit()):
                return place, int(index or 0)
        raise UserError(f"{self.name} has no processor {processor!r}; it has {', '.join(p.name for p in self._row.places)}")

    def _target(self, place: Place, index: int, given: Options = ()) -> Target:
        """`given` are the processor's options; those of this provider stand where it has none.

        Raises DeviceError where the plugin package does not say what it must, UserError for an unknown option.
        """
        merged = dict(self._given[place.name]) | dict(given)
        row, (own, entries) = self._row, _separate(self._row, tuple(merged.items()))
        library, paths = "", {}
        if row.package:
            try:
                package = importlib.import_module(row.package)
                library = str(package.get_library_path())
                paths = {option: str(getattr(package, function)()) for option, function in place.paths.items()}
            except Exception as e:  # a stranger's package may fail in any way
                raise DeviceError(f"the package {row.package} does not name its library: {first_line(e)}") from e
        options = {**place.options, **paths, **own}
        return Target(row.provider, place.kind, index, library, options, entries, row.static, row.context)


def _content(bundle: Bundle, spec: SubgraphSpec) -> str:
    """Hashes of the subgraph and of the weights: those verified when the bundle was opened; a trial's are not in its manifest."""
    return " ".join(bundle.manifest.files.get(name) or sha256(bundle.path / name) for name in (spec.file, WEIGHTS))


def _separate(row: Row, given: Options) -> tuple[dict[str, str], dict[str, str]]:
    """(provider options, session entries). Raises UserError for an unknown one."""
    entries = {k: v for k, v in given if "." in k}
    options = {k: v for k, v in given if "." not in k}
    session_options(entries=entries)  # refuses unknown ones
    check_names(options, row.known, f"option of {row.provider}")
    return options, entries


def _require(session: ort.InferenceSession, told: Placement, file: Path) -> None:
    """Raises DeviceError where the session made here is not placed as the one that was compiled."""
    mine = {part.ep_name for part in session.get_provider_graph_assignment_info()}
    if mine != set(told.nodes):
        raise DeviceError(f"{file}: compiled for {', '.join(told.nodes)}, and now it runs on {', '.join(sorted(mine))}")
