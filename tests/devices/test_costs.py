"""Costs: what is predicted from them, and that a whole never costs more than its parts."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgeengine.devices.costs import COSTS, SPREAD, amounts, predict
from edgeengine.devices.profiles import load_profile
from edgeengine.errors import UserError
from edgeengine.spec.device import Figure
from edgeengine.spec.features import Features

COUNT = st.integers(0, 10**9)
FEATURES = st.builds(Features, **dict.fromkeys(Features.__struct_fields__, COUNT)).map(
    lambda f: Features(**{n: getattr(f, n) for n in f.__struct_fields__} | {"depthwise_convolutions": f.convolutions // 2})
)
FIGURES = st.dictionaries(st.sampled_from(list(COSTS)), st.floats(1e-6, 1e3)).map(
    lambda costs: {name: Figure(value, COSTS[name], "made up", "guessed") for name, value in costs.items()}
)


@given(st.lists(FEATURES, min_size=1, max_size=5), FIGURES)
def test_parts_cost_the_whole_and_a_call_for_each_further_part(parts: list[Features], costs: dict[str, Figure]) -> None:
    together = predict(sum(parts, Features()), costs).median_ms
    apart = sum(predict(p, costs).median_ms for p in parts)
    calls = (len(parts) - 1) * (costs["call"].value if "call" in costs else 0.0)
    assert apart == pytest.approx(together + calls)


@given(FEATURES, FIGURES, st.floats(0.1, 1.0), st.floats(1.0, 10.0))
def test_interval_is_the_spread_about_the_median(f: Features, costs: dict[str, Figure], low: float, high: float) -> None:
    found = predict(f, costs | {SPREAD: Figure(1.0, "times", "made up", "guessed", low, high)})
    assert found.median_ms == predict(f, costs).median_ms == sum(amounts(f)[n] * c.value for n, c in costs.items())
    assert (found.low_ms, found.high_ms) == (found.median_ms * low, found.median_ms * high)


@pytest.mark.parametrize(
    ("name", "unit", "said"),
    [
        ("mac", "ms", "speed.float.figures.mac: its unit must be 'ms/GMAC'"),
        ("macs", "ms/GMAC", "there is no 'macs'; known: call, mac"),
    ],
)
def test_a_cost_that_is_none_or_has_another_unit_is_refused(tmp_path, monkeypatch, name: str, unit: str, said: str) -> None:  # type: ignore[no-untyped-def]
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/board.toml").write_text(f"""
description = "a board"
chip = "one"
[[processor]]
name = "cpu"
kind = "cpu"
resources = ["core0"]
description = "a core"
[processor.speed.float]
runtime = "some"
[processor.speed.float.figures]
{name} = {{ value = 1.0, unit = "{unit}", source = "made up", status = "guessed" }}
""")
    monkeypatch.setenv("EDGEENGINE_PROFILES", str(tmp_path))
    with pytest.raises(UserError, match=r"board\.toml") as refused:
        load_profile("mine/board")
    assert said in str(refused.value)
