"""A new device from few measurements and a described one that is like it."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgeengine.devices import load_profile
from edgeengine.errors import UserError
from edgeengine.planning.calibration import calibrated
from edgeengine.planning.estimates import from_macs
from edgeengine.profiling.anchors import Anchor, read_csv

LIKE = load_profile("snapdragon-8-gen-3")
NPU = next(p for p in LIKE.processor if p.name == "npu").speed["float"]
HEAD = "processor,precision,model,model_key,gmacs,batch,latency_ms\n"


def expected_ms(macs: float) -> float:
    return from_macs(macs, NPU).median_ns / 1e6


@given(st.floats(0.05, 20), st.lists(st.floats(1e7, 2e10), min_size=1, max_size=6))
def test_a_device_that_is_so_many_times_as_fast_is_found_to_be(factor: float, macs: list[float]) -> None:
    anchors = [Anchor("npu", "float", m, expected_ms(m) / factor, "") for m in macs]
    made = next(p for p in calibrated(anchors, LIKE, "new", "a.csv").processor if p.name == "npu").speed["float"]
    assert from_macs(5e8, made).median_ns / 1e6 == pytest.approx(expected_ms(5e8) / factor, rel=1e-6)
    assert made.rate is not None and made.rate.status == "fitted" and made.measured == len(macs)


def test_bounds_hold_what_every_anchor_alone_would_say() -> None:
    anchors = [Anchor("npu", "float", 1e9, expected_ms(1e9) / f, "") for f in (0.01, 1.0, 100.0)]
    rate = next(p for p in calibrated(anchors, LIKE, "new", "a.csv").processor if p.name == "npu").speed["float"].rate
    assert rate is not None and NPU.rate is not None
    assert rate.value == pytest.approx(NPU.rate.value) and rate.low is not None and rate.high is not None
    assert rate.low <= NPU.rate.value / 99 and rate.high >= NPU.rate.value * 99


def test_what_was_not_measured_says_so() -> None:
    made = calibrated([Anchor("npu", "float", 1e9, 1.0, "")], LIKE, "new", "a.csv")
    others = [s for p in made.processor for k, s in p.speed.items() if (p.name, k) != ("npu", "float")]
    assert others and all(s.rate is None or (s.rate.status == "guessed" and "not calibrated" in s.rate.source) for s in others)


def test_kind_stands_for_all_processors_of_it_and_a_name_for_its_own() -> None:
    made = calibrated([Anchor("cpu", "float", 1e9, 1.0, "")], LIKE, "new", "a.csv")
    assert {p.name for p in made.processor if p.speed["float"].measured} == {"cpu-prime", "cpu-big", "cpu-all"}
    made = calibrated([Anchor("cpu", "float", 1e9, 1.0, "", threads=4)], LIKE, "new", "a.csv")
    assert {p.name for p in made.processor if p.speed["float"].measured} == {"cpu-big"}
    made = calibrated([Anchor("cpu-prime", "float", 1e9, 1.0, "")], LIKE, "new", "a.csv")
    assert {p.name for p in made.processor if p.speed["float"].measured} == {"cpu-prime"}


@pytest.mark.parametrize(
    "line, words",
    [
        ("npu,float,m,,1.8,,-3", "line 3: latency_ms: must be positive"),
        ("npu,float,m,,1.8,,0", "line 3: latency_ms: must be positive"),
        ("npu,float,m,,1.8,,fast", "line 3: latency_ms: 'fast' is not a number"),
        ("npu,float,m,,1.8,,", "line 3: latency_ms: '' is not a number"),
        ("npu,float,m,,inf,,3", "line 3: gmacs: must be positive"),
        ("npu,float,m,tv/nothing@224,,,3", "line 3: no gmacs, and model_key 'tv/nothing@224' is not known"),
        ("npu,bf16,m,,1.8,,3", "line 3: precision 'bf16'"),
        (",float,m,,1.8,,3", "line 3: no processor"),
        ("npu,float,m,,1.8,8,3", "line 3: batch 8"),
    ],
)
def test_bad_row_is_refused_with_its_line(tmp_path: Path, line: str, words: str) -> None:
    file = tmp_path / "a.csv"
    file.write_text(HEAD + "npu,float,good,,1.8,1,3\n" + line + "\n")
    with pytest.raises(UserError) as e:
        read_csv(file, {})
    assert words in str(e.value) and str(file) in str(e.value)


def test_a_file_that_a_spreadsheet_wrote_is_read(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text(HEAD + "npu,float,good,,1.8,1,3\n", encoding="utf-8-sig")
    assert len(read_csv(tmp_path / "a.csv", {})) == 1


def test_files_that_are_no_anchors_are_refused(tmp_path: Path) -> None:
    for text, words in ((HEAD, "no measurement"), ("a,b\n1,2\n", "line 1: no column latency_ms, precision, processor")):
        (tmp_path / "a.csv").write_text(text)
        with pytest.raises(UserError, match=words):
            read_csv(tmp_path / "a.csv", {})
    with pytest.raises(UserError, match="cannot be read"):
        read_csv(tmp_path / "none.csv", {})


@pytest.mark.parametrize(
    "anchor, words",
    [
        (Anchor("tpu", "float", 1e9, 1.0, "a.csv, line 2"), "a.csv, line 2: .* has no processor 'tpu'"),
        (Anchor("gpu", "int8", 1e9, 1.0, "a.csv, line 2"), "a.csv, line 2: .* has no int8 speed on gpu"),
    ],
)
def test_anchor_that_the_like_device_knows_nothing_of(anchor: Anchor, words: str) -> None:
    with pytest.raises(UserError, match=words):
        calibrated([anchor], LIKE, "new", "a.csv")
