"""This machine: cores by affinity and quota, not by count."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from edgeengine.devices import device_id, discover, machine, usable_cores
from edgeengine.devices.cores import kinds_of
from edgeengine.devices.providers import cpu
from edgeengine.devices.providers.cpu import CpuProvider
from edgeengine.profiling import equivalent

needs_affinity = pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="this platform has no affinity mask")


@pytest.fixture
def groups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A control group tree in which this process is in /outer/inner, on a machine of 4 cores."""
    (tmp_path / "outer/inner").mkdir(parents=True)
    real = machine._read
    monkeypatch.setattr(machine, "_read", lambda p: "1:cpu:/x\n0::/outer/inner" if p == Path("/proc/self/cgroup") else real(p))
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {2, 3, 5, 7}, raising=False)
    return tmp_path


@pytest.mark.parametrize(
    ("quota", "cores"),
    [
        ("max 100000", (2, 3, 5, 7)),
        ("50000 100000", (2,)),  # half a core is one
        ("200000 100000", (2, 3)),
        ("250000 100000", (2, 3)),
        ("100000 50000", (2, 3)),
        ("200000", (2, 3)),  # the period may be left out
        ("900000 100000", (2, 3, 5, 7)),
    ],
)
@pytest.mark.parametrize("where", [".", "outer", "outer/inner"])
def test_cores_are_limited_by_the_quota_of_any_group_above(groups: Path, quota: str, cores: tuple[int, ...], where: str) -> None:
    for group in ("outer", "outer/inner"):
        (groups / group / "cpu.max").write_text("max 100000\n")
    (groups / where / "cpu.max").write_text(quota + "\n")
    assert usable_cores(groups) == cores


@pytest.mark.parametrize(("outer", "inner"), [("200000 100000", "300000 100000"), ("300000 100000", "200000 100000")])
def test_tightest_quota_counts(groups: Path, outer: str, inner: str) -> None:
    (groups / "outer/cpu.max").write_text(outer)
    (groups / "outer/inner/cpu.max").write_text(inner)
    assert usable_cores(groups) == (2, 3)


@pytest.mark.parametrize(("quota", "cores"), [("-1", (2, 3, 5, 7)), ("150000", (2,)), ("300000", (2, 3, 5))])
def test_quota_of_version_1(groups: Path, quota: str, cores: tuple[int, ...]) -> None:
    (groups / "cpu").mkdir()
    (groups / "cpu/cpu.cfs_quota_us").write_text(quota)
    (groups / "cpu/cpu.cfs_period_us").write_text("100000")
    assert usable_cores(groups) == cores


def test_cores_without_control_groups_are_those_of_the_mask(groups: Path) -> None:
    assert usable_cores(groups / "nowhere") == (2, 3, 5, 7)


@needs_affinity
def test_process_on_one_core_sees_one_processor() -> None:
    core = max(os.sched_getaffinity(0))
    code = (
        f"import os; os.sched_setaffinity(0, {{{core}}})\n"
        "from edgeengine.devices import device_id, discover, usable_cores\n"
        "print(usable_cores(), [(p.name, p.host_core, p.threads) for p in discover() if p.kind == 'cpu'], device_id())"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert out.startswith(f"({core},) [('cpu{core}', {core}, 1)] ")
    assert "-1core-" in out


def test_processors_of_this_machine_are_usable_and_named_once() -> None:
    found = discover()
    assert len({p.name for p in found}) == len(found)
    assert all(p.usable or p.reason for p in found)
    assert {p.host_core for p in found if p.kind == "cpu"} <= set(usable_cores())


def test_device_id_is_stable_and_names_the_cores() -> None:
    assert device_id() == device_id()
    assert f"-{len(usable_cores())}core-" in device_id()


@pytest.mark.parametrize(
    ("speeds", "kinds"),
    [
        ([1024, 1024, 1024, 1024], [(0, 1, 2, 3)]),
        ([446, 446, 1024, 1024], [(2, 3), (0, 1)]),
        ([325, 325, 853, 1024], [(3,), (2,), (0, 1)]),
        ([1000, 980, 1024, 600], [(0, 1, 2), (3,)]),  # a favoured core is of the same kind
        ([None, None, None, None], [(0, 1, 2, 3)]),
        ([1024, None, 446, 446], [(0, 1, 2, 3)]),  # half a truth is none
    ],
)
@pytest.mark.parametrize("figure", ["cpu_capacity", "cpufreq/cpuinfo_max_freq"])
def test_cores_by_kind(tmp_path: Path, speeds: list[int | None], kinds: list[tuple[int, ...]], figure: str) -> None:
    for core, speed in enumerate(speeds):
        if speed is not None:
            (file := tmp_path / f"cpu{core}" / figure).parent.mkdir(parents=True)
            file.write_text(f"{speed}\n")
    assert kinds_of(range(4), tmp_path) == kinds


def test_an_asymmetric_machine_has_a_processor_per_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cpu, "kinds_of", lambda cores: [(4, 5), (0, 1, 3)])
    processors = CpuProvider().discover((0, 1, 3, 4, 5))
    assert {p.name: p.cores for p in processors if p.threads > 1} == {
        "cpu4-5": (4, 5), "cpu0+1+3": (0, 1, 3), "cpu-all": (0, 1, 3, 4, 5),
    }  # fmt: skip
    alike = [[p.name for p in group] for group in equivalent(processors)]
    assert alike == [["cpu0", "cpu1", "cpu3"], ["cpu4", "cpu5"], ["cpu4-5"], ["cpu0+1+3"], ["cpu-all"]]


@pytest.mark.parametrize(
    ("cpuinfo", "board", "expected"),
    [
        ("processor: 0\nmodel name : Some CPU @ 2 GHz\n", None, "Some CPU @ 2 GHz"),
        ("processor: 0\nHardware : x\nModel : Raspberry Pi 5\n", "another", "Raspberry Pi 5"),
        ("CPU implementer : 0x41\nCPU part : 0xd05\nCPU part : 0xd0b\n", "Board 3\0", "Board 3 0x41 0xd05 0xd0b"),
        ("CPU implementer : 0x41\nCPU part : 0xd05\n", None, "0x41 0xd05"),
    ],
)
def test_the_cpu_has_a_name_on_every_architecture(monkeypatch, cpuinfo: str, board: str | None, expected: str) -> None:  # type: ignore[no-untyped-def]
    files = {"/proc/cpuinfo": cpuinfo, "/proc/device-tree/model": board}
    monkeypatch.setattr(machine, "_read", lambda p: files[str(p)])
    assert machine._cpu_model() == expected
