"""Device profiles are found from a source tree, a folder of one's own, and an installed wheel."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import onnx.defs
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from edgeengine.devices import list_profiles, load_profile
from edgeengine.devices.profile_file import to_toml
from edgeengine.devices.profiles import operator_table, read_profile
from edgeengine.errors import UserError
from edgeengine.graph import costs
from edgeengine.spec.operators import OPERATORS

ROOT = Path(__file__).parents[2]
PROFILE = """
description = "a board"
chip = "a chip"
[[processor]]
name = "cpu0"
kind = "cpu"
resources = ["core0"]
description = "a core"
clock = { value = 1.5, unit = "GHz", source = "its label", status = "seen" }
[processor.speed.float]
runtime = "ncnn"
rate = { value = 8.0, unit = "GMAC/s", source = "a table", status = "fitted", low = 6.0, high = 9.0 }
"""


TAIL = "[tail]\n" + "".join(
    f'{key} = {{ value = {value}, unit = "{"runs" if key == "runs" else "times"}", source = "x", status = "guessed" }}\n'
    for key, value in (("min", 0.9), ("p90", 1.1), ("p99", 1.2), ("max", 4.0), ("runs", 5000))
)


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "acme").mkdir()
    monkeypatch.setenv("EDGEENGINE_PROFILES", str(tmp_path))
    return tmp_path


def test_profiles_of_the_source_tree_are_found_and_valid() -> None:
    names = {p.name for p in list_profiles()}
    assert names == {f"{f.parent.name}/{f.stem}" for f in (ROOT / "profiles").glob("*/*.toml")} != set()
    for profile in list_profiles():
        assert profile.processors
        assert len({p.name for p in profile.processors}) == len(profile.processors)
        assert all(p.provider == "simulated" and p.resources for p in profile.processors)


def test_profile_is_loaded_by_its_full_or_its_only_name() -> None:
    assert load_profile("raspberrypi/pi4") == load_profile("pi4")
    with pytest.raises(UserError, match=r"'pi99'; did you mean 'pi4'"):
        load_profile("pi99")


def test_own_folder_comes_first(own: Path) -> None:
    (own / "acme/board.toml").write_text(PROFILE)
    (own / "raspberrypi").mkdir()
    (own / "raspberrypi/pi4.toml").write_text(PROFILE)
    assert load_profile("board").name == "acme/board"
    assert load_profile("pi4").chip == "a chip"
    assert {"acme/board", "raspberrypi/pi4"} < {p.name for p in list_profiles()}


def test_name_that_two_vendors_use_must_be_given_in_full(own: Path) -> None:
    for vendor in ("acme", "other"):
        (own / vendor).mkdir(exist_ok=True)
        (own / vendor / "board.toml").write_text(PROFILE)
    with pytest.raises(UserError, match="acme/board, other/board"):
        load_profile("board")
    assert load_profile("other/board").name == "other/board"


def test_profile_is_loaded_by_its_path(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text(PROFILE)
    assert load_profile(str(tmp_path / "mine.toml")).chip == "a chip"
    with pytest.raises(UserError, match=r"nowhere\.toml.*No such file"):
        load_profile(str(tmp_path / "nowhere.toml"))


def test_processor_of_each_core_is_several_of_the_engines() -> None:
    pi = load_profile("pi4")
    made = {p.name: p for p in pi.processors}
    assert {"cpu0", "cpu1", "cpu2", "cpu3", "cpu-all", "gpu"} == made.keys()
    assert [made[f"cpu{i}"].resources for i in range(4)] == [(f"core{i}",) for i in range(4)]
    assert made["cpu-all"].threads == 4 and all(made["cpu-all"].conflicts(made[f"cpu{i}"]) for i in range(4))
    assert made["cpu0"].core_kind == made["cpu1"].core_kind != made["cpu-all"].core_kind


@pytest.mark.parametrize(
    "old, new, where",
    [
        ("value = 1.5", "value = 0", "processor cpu0, clock: must be positive, and is 0"),
        ("value = 1.5", "value = -2", "processor cpu0, clock: must be positive, and is -2"),
        ("value = 1.5", "value = nan", "processor cpu0, clock: must be positive"),
        ('unit = "GHz", ', "", "missing required field `unit` - at `processor cpu0, clock`"),
        ('"GHz"', '"MHz"', "processor cpu0, clock: its unit must be 'GHz', not 'MHz'"),
        ("low = 6.0", "low = 8.5", "processor cpu0, speed.float.rate: 8 does not lie within its bounds"),
        ("low = 6.0", "low = -1", "processor cpu0, speed.float.rate: must be positive"),
        (
            'runtime = "ncnn"',
            'runtime = "ncnn"\noperators = { Sofmax = { value = 1.0, unit = "ms", source = "x", status = "guessed" } }',
            "processor cpu0, speed.float.operators: there is no operator 'Sofmax'",
        ),
        (
            'description = "a core"',
            'description = "a core"\nslowdown = { npu = { value = 1.2, unit = "times", source = "x", status = "guessed" } }',
            "processor cpu0, slowdown: there is no 'npu'",
        ),
        (
            'description = "a core"',
            'description = "a core"\nslowdown = { cpu0 = { value = 0.9, unit = "times", source = "x", status = "guessed" } }',
            "processor cpu0, slowdown.cpu0: must be at least 1",
        ),
        ('resources = ["core0"]', "resources = []", "processor cpu0: needs at least one resource"),
        ("[[processor]]", "[[processors]]", "unknown field `processors`"),
        (
            "[[processor]]",
            f"{TAIL.replace('runs = { value = 5000', 'runs = { value = 500')}[[processor]]",
            "tail, runs: the greatest",
        ),
        ("[[processor]]", f"{TAIL.replace('p90 = { value = 1.1', 'p90 = { value = 1.3')}[[processor]]", "tail: min, 1, p90"),
    ],
)
def test_figure_that_cannot_be_right_is_one_line_with_file_and_key(own: Path, old: str, new: str, where: str) -> None:
    assert old in PROFILE
    (own / "acme/board.toml").write_text(PROFILE.replace(old, new))
    with pytest.raises(UserError) as e:
        load_profile("acme/board")
    assert "board.toml" in str(e.value) and where in str(e.value) and "\n" not in str(e.value)


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_damaged_profile_is_the_users_error(tmp_path: Path, data: st.DataObject) -> None:
    """Whatever stands in the file: it is read, or refused by name in one line."""
    text = bytearray((ROOT / "profiles/nvidia/jetson-nano.toml").read_bytes())
    put = st.binary(max_size=4) | st.sampled_from([b"0", b"-", b"nan", b"1e400"])
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(text) - 1))
        text[at : at + data.draw(st.integers(0, 12))] = data.draw(put)
    file = tmp_path / "damaged.toml"
    file.write_bytes(text)
    try:
        read_profile(file)
    except UserError as e:
        assert "damaged.toml" in str(e) and "\n" not in str(e)


def test_every_profile_survives_writing_and_reading(tmp_path: Path) -> None:
    for profile in list_profiles():
        file = tmp_path / f"{profile.name.replace('/', '-')}.toml"
        file.write_text(to_toml(profile))
        assert read_profile(file, profile.name) == profile


def test_operators_that_exist_are_those_of_onnx_and_of_the_cost_rules() -> None:
    ours = {f"{domain}.{op}" if domain else op for domain, op in [*costs.RULES, *costs.ZERO, *costs.CONTROL_FLOW]}
    standard = {s.name for s in onnx.defs.get_all_schemas() if not s.domain}
    assert ours | standard <= OPERATORS
    assert {op for op in OPERATORS if "." not in op} == standard | {op for op in ours if "." not in op}


def test_tables_of_operators_are_found_and_hold_what_they_must(own: Path) -> None:
    assert {"Conv", "Softmax", "QuantizeLinear"} <= operator_table("qnn").runs and "Loop" not in operator_table("qnn").runs
    for profile in list_profiles():
        for processor in profile.processor:
            assert not processor.runs or operator_table(processor.runs).runs
    with pytest.raises(UserError, match=r"no table of operators 'cuda'.*qnn, webgpu"):
        operator_table("cuda")
    (own / "operators.toml").write_text('[mine]\nsource = "x"\nstatus = "guessed"\nruns = ["Conv", "Convv"]')
    with pytest.raises(UserError, match=r"operators\.toml: mine.runs: there is no operator 'Convv'"):
        operator_table("mine")


@pytest.mark.parametrize(
    "text",
    ["not toml [", "chip = 1", PROFILE.replace('"cpu"', '"abacus"'), PROFILE.replace('"seen"', '"heard"'),
     PROFILE + "cores = 4", PROFILE.replace(', source = "its label"', "")],
)  # fmt: skip
def test_bad_profile_is_named(own: Path, text: str) -> None:
    (own / "acme/board.toml").write_text(text)
    with pytest.raises(UserError, match=r"board\.toml: not a valid device profile"):
        load_profile("acme/board")


def test_own_folder_that_is_missing_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("EDGEENGINE_PROFILES", str(tmp_path / "nowhere"))
    with pytest.raises(UserError, match=r"EDGEENGINE_PROFILES=.*nowhere"):
        list_profiles()


def test_wheel_has_one_top_level_with_the_profiles_in_it(tmp_path: Path) -> None:
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path / "dist")], cwd=ROOT, check=True,
        capture_output=True,
    )  # fmt: skip
    (wheel,) = (tmp_path / "dist").glob("*.whl")
    unpacked = tmp_path / "unpacked"
    zipfile.ZipFile(wheel).extractall(unpacked)
    tops = sorted(p.name for p in unpacked.iterdir())
    assert len(tops) == 2 and tops[0] == "edgeengine" and tops[1].endswith(".dist-info")
    assert not [p for p in unpacked.rglob("*") if p.name.startswith(("test_", "tests")) or p.name == "conftest.py"]
    code = "import edgeengine, edgeengine.devices as d; print(edgeengine.__file__); print(*[p.name for p in d.list_profiles()])"
    env = {k: v for k, v in os.environ.items() if k != "EDGEENGINE_PROFILES"} | {"PYTHONPATH": str(unpacked)}
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=tmp_path, env=env).stdout
    file, names = out.splitlines()
    assert Path(file).is_relative_to(unpacked)
    assert set(names.split()) == {f"{f.parent.name}/{f.stem}" for f in (ROOT / "profiles").glob("*/*.toml")}
