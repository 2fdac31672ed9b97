"""The committed device profiles are what the tables make, and say where each figure comes from."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgeengine.devices import list_profiles
from tools.profiles import fits
from tools.profiles.__main__ import write
from tools.profiles.assemble import THROUGHPUT_ONLY
from tools.profiles.tables import ROOT, Tables


@pytest.fixture(scope="module")
def tables() -> Tables:
    return Tables()


def test_profiles_are_made_from_the_tables_byte_for_byte(tmp_path: Path, tables: Tables) -> None:
    """One of each kind whose costs are soon fitted; all of them are made in a minute or two by `make profiles`."""
    for name in ("hailo/hailo-8", "intel/core-i7-1185g7", "hisilicon/kirin-990"):
        (file,) = write(tmp_path, tables, [name])
        assert file.read_bytes() == (ROOT / f"{name}.toml").read_bytes()
    assert {f"{f.parent.name}/{f.stem}" for f in ROOT.glob("*/*.toml")} == {row["profile"] for row in tables.devices}


def test_there_are_phones_boards_and_laptops_enough(tables: Tables) -> None:
    forms = [row["form"] for row in tables.devices]
    assert len(forms) >= 24 and all(forms.count(form) >= 3 for form in ("phone", "board", "laptop"))
    assert len({row["profile"] for row in tables.devices}) == len(forms)


def test_every_figure_has_a_source_and_fitted_ones_have_bounds() -> None:
    for profile in list_profiles():
        for where, figure in profile.figures():
            assert figure.source.strip(), (profile.name, where)
            if figure.status == "fitted" and "slower" not in where:
                bounded = figure.low is not None and figure.high is not None
                assert bounded or ".figures." in where, (profile.name, where)  # costs have their bounds together, as a spread


def test_what_was_measured_is_the_basis_of_a_speed(tables: Tables) -> None:
    """A line has no more rows behind it than there are measurements, and a processor without any has no speed of its own."""
    for profile in list_profiles():
        for processor in profile.processor:
            described = next(p for p in tables.processors if (p.profile, p.name) == (profile.name, processor.name))
            for precision, speed in processor.speed.items():
                assert speed.measured == 0 if described.like else speed.measured >= 1
                if not described.like and speed.rate is not None:
                    assert speed.measured <= len(tables.rows(described, precision))


@settings(max_examples=30, deadline=None)
@given(st.floats(0.01, 10), st.floats(1, 1e4), st.integers(0, 2**32 - 1))
def test_line_is_found_again_whatever_a_fifth_of_the_points_say(overhead: float, rate: float, seed: int) -> None:
    rng = np.random.default_rng(seed)
    gmacs = np.exp(rng.uniform(-3, 3, 40))
    ms = overhead + 1000 * gmacs / rate
    ms[:8] *= 5
    found = fits.line([str(i) for i in range(40)], list(gmacs), list(ms), "made up")
    assert found is not None
    again = found[0].value + 1000 * gmacs / found[1].value
    assert np.allclose(again[8:], ms[8:], rtol=0.02)


def test_bounds_hold_nine_of_ten_models_that_the_lines_have_not_seen(tables: Tables) -> None:
    """Over all processors with 12 models and more: every other model fits the line, the rest is asked."""
    held = []
    for p in tables.processors:
        for precision, runtime in p.runtimes.items():
            rows = [(r, g) for r in tables.rows(p, precision) if (g := tables.gmacs(r))] if runtime not in THROUGHPUT_ONLY else []
            models = sorted({r["model"] for r, _ in rows})
            if len(models) < 12:
                continue
            for seen in (set(models[::2]), set(models[1::2])):
                mine = [(r["model"], g, float(r["latency_ms"])) for r, g in rows if r["model"] in seen]
                found = fits.line(*zip(*mine), "half")
                assert found is not None
                overhead, rate = found
                for r, g in rows:
                    if r["model"] not in seen:
                        low = overhead.low + 1000 * g / rate.high
                        high = overhead.high + 1000 * g / rate.low
                        held.append(low <= float(r["latency_ms"]) <= high)
    assert len(held) > 1000 and 0.86 <= np.mean(held) <= 0.96


def test_tail_of_the_logs_gives_the_means_that_they_state(tables: Tables) -> None:
    """The Pareto tail is fitted to p99 and maximum; the logs' means are not in it, and it agrees with them."""
    from edgeengine.devices.effects import spread

    latency = spread(1e6, fits.tail(tables, "fitted"))
    u = (np.arange(20_000) + 0.5) / 200
    mean = np.mean([latency.at(float(p)) for p in u]) / 1e6
    assert 0.995 < mean < 1.01


def test_company_costs_what_the_table_says(tables: Tables) -> None:
    own, other = fits.company(tables, "Intel Core i7-1185G7"), fits.company(tables, "a phone")
    assert (own.status, other.status) == ("fitted", "guessed")
    assert 1.3 < own.value < 1.6 and 1.3 < other.value < 1.6
