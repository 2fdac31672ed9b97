"""Plugin packages that are missing, broken or dangerous: never fatal here, always a reason, never replaced in silence."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace as Made

import msgspec
import numpy as np
import onnxruntime as ort
import pytest

from edgeengine.bundle import Bundle
from edgeengine.devices.providers import ROWS, accelerator, compiled, target
from edgeengine.devices.providers.accelerator import Accelerator, Place, Row
from edgeengine.devices.providers.child import VERDICT, Verdict
from edgeengine.devices.providers.compiled import Cache
from edgeengine.devices.providers.ort import CPU
from edgeengine.devices.providers.smallest import smallest_model
from edgeengine.devices.providers.target import Target, hardware
from edgeengine.errors import DeviceError, UserError
from edgeengine.spec import Placement, Processor
from tests.emulator import whole

EP = "PretendExecutionProvider"
Package = Callable[..., Row]


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Package:
    """Installs a plugin package whose library is the file given, and returns its row."""

    def install(name: str, library: Path | None, code: str = "") -> Row:
        folder = tmp_path / "site" / name
        folder.mkdir(parents=True)
        (folder / "__init__.py").write_text(code or f"def get_library_path():\n    return {str(library)!r}\n")
        monkeypatch.syspath_prepend(tmp_path / "site")
        monkeypatch.delitem(sys.modules, name, raising=False)
        return Row(EP, (Place("gpu-pretend", "gpu"),), package=name, known=frozenset({"speed"}))

    return install


def only(row: Row, cache: Path) -> Processor:
    (found,) = Accelerator(row, cache=cache).discover((0, 1))
    assert found.kind == "gpu" and found.provider == EP and not found.usable and found.reason
    assert "\n" not in found.reason
    return found


def test_what_is_not_installed_costs_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(accelerator, "Cache", lambda *a: pytest.fail("probed"))
    rows = [Row(EP, (Place("gpu-pretend", "gpu"),), package="no_such_package_at_all"), Row(EP, (Place("gpu-pretend", "gpu"),))]
    for row in rows:
        assert not row.installed and Accelerator(row, cache=tmp_path).discover((0,)) == []


def test_missing_library(package: Package, tmp_path: Path) -> None:
    found = only(package("ep_missing", tmp_path / "nothing.so"), tmp_path / "cache")
    assert "cannot be loaded" in found.reason or "nothing.so" in found.reason


def test_a_library_that_is_none(package: Package, tmp_path: Path) -> None:
    (tmp_path / "text.so").write_text("not a library")
    assert "text.so" in only(package("ep_text", tmp_path / "text.so"), tmp_path / "cache").reason


def test_a_package_that_does_not_name_its_library(package: Package, tmp_path: Path) -> None:
    row = package("ep_broken", None, "raise OSError('driver libraries are missing')\n")
    assert "ep_broken does not name its library: driver libraries are missing" in only(row, tmp_path / "cache").reason
    row = package("ep_without", None, "x = 1\n")
    assert "get_library_path" in only(row, tmp_path / "cache").reason


def test_a_driver_that_crashes_takes_a_child_with_it(
    package: Package, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bundles: dict[str, Bundle]
) -> None:
    """The child aborts as soon as it starts, as one does whose driver aborts on load; it is not tried again at once."""
    (tmp_path / "crash").mkdir()
    (tmp_path / "crash" / "sitecustomize.py").write_text("import os\nos.abort()\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "crash"))
    row, cache = package("ep_crash", tmp_path / "x.so"), tmp_path / "cache"
    assert only(row, cache).reason == "the provider crashed its process (SIGABRT)"
    processor = Processor("gpu-pretend", "gpu", EP, ("gpu",))
    with pytest.raises(DeviceError, match=r"cannot be loaded on gpu-pretend: the provider crashed its process \(SIGABRT\)"):
        Accelerator(row, cache=cache).load(bundles["scale"], whole(bundles["scale"], processor.name), processor)
    monkeypatch.setattr(compiled, "_run_child", lambda *a: pytest.fail("tried again"))
    assert only(row, cache).reason == "the provider crashed its process (SIGABRT)"


def test_a_failure_is_believed_for_a_while_only(package: Package, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    row, cache, tried = package("ep_busy", tmp_path / "x.so"), tmp_path / "cache", []
    monkeypatch.setattr(compiled, "_run_child", lambda *a: (tried.append(a), "the device is busy")[1])
    for at, times in ((0.0, 1), (compiled.RETRY_S - 1.0, 1), (compiled.RETRY_S + 1.0, 2), (0.0, 3)):
        monkeypatch.setattr(compiled.time, "time", lambda at=at: at)
        assert only(row, cache).reason == "the device is busy"
        assert len(tried) == times


def test_a_cache_that_cannot_be_written_is_the_reason(package: Package, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The other processors are listed all the same."""
    row = package("ep_cache", tmp_path / "x.so")
    (tmp_path / "file").write_text("")
    assert str(tmp_path / "file") in only(row, tmp_path / "file" / "cache").reason
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "file"))
    (found,) = Accelerator(row).discover((0,))
    assert not found.usable and "XDG_STATE_HOME" in found.reason


def test_a_driver_that_hangs_is_given_up(package: Package, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "hang").mkdir()
    (tmp_path / "hang" / "sitecustomize.py").write_text("import threading\nthreading.Event().wait()\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "hang"))
    monkeypatch.setattr(accelerator, "PROBE_TIMEOUT_S", 0.3)
    assert only(package("ep_hang", tmp_path / "x.so"), tmp_path / "cache").reason == "the provider hung: no answer within 0.3 s"


def test_a_provider_without_a_device_says_so(package: Package, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As the libraries of OpenVINO and WebGPU do on a machine without their hardware: they load, and list nothing."""
    registered: list[tuple[str, str]] = []
    monkeypatch.setattr(target, "_registered", set())
    monkeypatch.setattr(target.ort, "register_execution_provider_library", lambda *a: registered.append(a))
    target.register(Target(EP, "gpu", library="x.so"))
    with pytest.raises(DeviceError, match="lists no gpu on this machine; is its driver installed"):
        target.ask(Target(EP, "gpu", library="x.so"), ort.SessionOptions())
    assert registered == [(EP, "x.so")]  # once per process


def test_devices_that_only_a_plugin_lists_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """E3: get_available_providers never shows them. An NPU on a CPU is an emulator; a second GPU is a second processor."""

    def listed(*types: str) -> None:
        devices = [Made(ep_name=EP, device=Made(type=Made(name=t))) for t in types]
        monkeypatch.setattr(ort, "get_ep_devices", lambda: devices)

    listed("CPU")
    assert hardware(Target(EP, "npu"))[1] is True
    listed("CPU", "NPU")
    assert [d.device.type.name for d in hardware(Target(EP, "npu"))[0]] == ["NPU"] and not hardware(Target(EP, "npu"))[1]
    listed("GPU", "GPU", "CPU")
    assert len(hardware(Target(EP, "gpu"))[0]) == 2
    listed()
    assert hardware(Target(EP, "gpu")) == ([], False)


def test_a_built_in_provider_takes_the_same_way(tmp_path: Path) -> None:
    """The CPU stands in for CUDA where that is built in; where it is not, ONNX Runtime only warns, and we say why (E1)."""
    model, cache = smallest_model(tmp_path), Cache(tmp_path / "cache")
    verdict, context = cache.get(model, "relu", {}, Target(CPU, "gpu"))
    assert (verdict.error, context, verdict.devices) == ("", None, 1) and verdict.placement == Placement(CPU, {CPU: 1})
    if "CUDAExecutionProvider" not in ort.get_available_providers():
        verdict, _ = cache.get(model, "relu", {}, Target("CUDAExecutionProvider", "gpu"))
        assert verdict.error == "ONNX Runtime cannot start CUDAExecutionProvider: its libraries or its driver are missing"


def test_two_gpus_are_two_processors(package: Package, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:

    verdict = Verdict(Placement(EP, {EP: 1}), devices=2)
    monkeypatch.setattr(Cache, "get", lambda *a: (verdict, None))
    found = Accelerator(package("ep_two", tmp_path / "x.so"), cache=tmp_path).discover((0, 3))
    assert [(p.name, p.resources, p.host_core, p.usable) for p in found] == [
        ("gpu-pretend", ("gpu",), 3, True), ("gpu-pretend1", ("gpu1",), 3, True),
    ]  # fmt: skip


@pytest.mark.parametrize(("key", "message"), [
    ("sped", "option of PretendExecutionProvider 'sped' is unknown; did you mean 'speed'"),
    ("session.disable_prepackin", "did you mean 'session.disable_prepacking'"),
])  # fmt: skip
def test_misspelt_options_are_refused(package: Package, tmp_path: Path, key: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        Accelerator(package("ep_options", tmp_path / "x.so"), {"gpu-pretend": {key: "1"}})


def test_options_go_with_the_processor_and_reach_its_sessions(
    package: Package, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bundles: dict[str, Bundle]
) -> None:
    """Also a provider made without them uses the processor's, as an engine does that runs a plan; unknown ones are refused."""
    asked: list[Target] = []
    monkeypatch.setattr(Cache, "get", lambda *a: (asked.append(a[4]), (Verdict(error="no"), None))[1])
    row, given = package("ep_given", tmp_path / "x.so"), {"speed": "9", "session.disable_prepacking": "1"}
    (found,) = Accelerator(row, {"gpu-pretend": given}, tmp_path).discover((0,))
    assert dict(found.options) == given
    again = msgspec.json.decode(msgspec.json.encode(found), type=Processor)
    provider, step = Accelerator(row, cache=tmp_path), whole(bundles["scale"], found.name)
    for processor in (again, msgspec.structs.replace(again, options=())):
        with pytest.raises(DeviceError, match="cannot be loaded"):
            provider.load(bundles["scale"], step, processor)
    expected = ({"speed": "9"}, {"session.disable_prepacking": "1"})
    assert [(t.options, t.entries) for t in asked] == [expected, expected, ({}, {})]
    with pytest.raises(UserError, match="'sped' is unknown"):
        provider.load(bundles["scale"], step, msgspec.structs.replace(again, options=(("sped", "1"),)))


def test_names_of_processors_are_unique() -> None:
    names = [place.name for row in ROWS for place in row.places]
    assert len(names) == len(set(names))


# ---- the cache ----


def test_key_changes_with_every_cause(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """E7: one weight changed under the same file name, an option, a shape, the plugin's library."""
    made: list[object] = []
    monkeypatch.setattr(
        compiled, "_run_child", lambda job, timeout: (made.append(job), (job.parent / VERDICT).write_bytes(b"{}"), "")[2]
    )
    library, cache, model = tmp_path / "x.so", Cache(tmp_path / "cache"), tmp_path / "m.onnx"
    library.write_text("one")
    asked = Target(EP, "npu", library=str(library))
    for content, shapes, wanted in [
        ("a", {"x": (1,)}, asked), ("b", {"x": (1,)}, asked), ("a", {"x": (2,)}, asked),
        ("a", {"x": (1,)}, Target(EP, "npu", library=str(library), options={"speed": "9"})),
    ]:  # fmt: skip
        for _ in range(2):
            cache.get(model, content, shapes, wanted)
    assert len(made) == 4
    library.write_text("another version")
    cache.get(model, "a", {"x": (1,)}, asked)
    assert len(made) == 5
    assert not [p for p in cache.folder.iterdir() if p.name.startswith(".")]


def test_content_is_the_files_even_where_no_manifest_lists_their_hashes(
    package: Package, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bundles: dict[str, Bundle]
) -> None:
    """A trial of the cut search has none; two models of one shape must not share a verdict."""
    asked: list[str] = []
    monkeypatch.setattr(Cache, "get", lambda self, model, content, *_: (asked.append(content), (Verdict(error="no"), None))[1])
    provider = Accelerator(package("ep_content", tmp_path / "x.so"), cache=tmp_path / "cache")
    processor = Processor("gpu-pretend", "gpu", EP, ("gpu",))
    for name in ("scale", "frames"):
        listed = bundles[name]
        trial = replace(listed, manifest=msgspec.structs.replace(listed.manifest, files={}))
        for bundle in (listed, trial):
            with pytest.raises(DeviceError, match="cannot be loaded on gpu-pretend: no"):
                provider.load(bundle, whole(bundle, processor.name), processor)
    assert asked[0] == asked[1] != asked[2] == asked[3]


def test_cache_is_bounded_and_forgets_what_was_used_longest_ago(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def run_child(job: Path, timeout: float | None) -> str:
        (job.parent / VERDICT).write_bytes(b"{}")
        (job.parent / "context.onnx").write_bytes(bytes(1000))
        return ""

    monkeypatch.setattr(compiled, "_run_child", run_child)
    cache = Cache(tmp_path, limit_bytes=4000)
    for i in range(5):
        _, context = cache.get(tmp_path / "m.onnx", f"content {i}", {}, Target(EP, "npu"))
        assert context is not None and context.is_file()
        os.utime(context.parent, (i, i))
    assert sorted(p.stat().st_mtime for p in tmp_path.iterdir()) == [2, 3, 4]


def test_a_damaged_verdict_is_made_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[object] = []
    monkeypatch.setattr(
        compiled, "_run_child", lambda job, timeout: (made.append(job), (job.parent / VERDICT).write_bytes(b"{}"), "")[2]
    )
    cache = Cache(tmp_path)
    cache.get(tmp_path / "m.onnx", "a", {}, Target(EP, "npu"))
    (place,) = tmp_path.iterdir()
    (place / VERDICT).write_bytes(b"{")
    cache.get(tmp_path / "m.onnx", "a", {}, Target(EP, "npu"))
    assert len(made) == 2


def test_the_smallest_model_is_one(tmp_path: Path) -> None:
    session = ort.InferenceSession(str(smallest_model(tmp_path)), providers=[CPU])
    x = np.array([[-1, 0, 2, -3]], np.float32)
    np.testing.assert_array_equal(session.run(None, {"x": x})[0], np.maximum(x, 0))
