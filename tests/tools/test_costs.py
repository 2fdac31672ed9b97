"""Fitting costs: what made the latencies is found again, and what the profiles state of their errors holds."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.costs import FAMILIES, accuracy
from tools.profiles.costs import Family, fit, left_out
from tools.profiles.families import Families, architecture, interval
from tools.profiles.tables import Tables


@pytest.fixture(scope="module")
def families() -> Families:
    return Families(Tables())


def made(rng: np.random.Generator, models: int = 60, processors: int = 5) -> tuple[Family, np.ndarray]:
    work = np.exp(rng.normal(0, 1.5, (models, 4))) * (rng.random((models, 4)) < 0.8)
    work[:, 0] = 1.0
    costs = np.exp(rng.normal(0, 1, (4, 1))) * np.exp(rng.normal(0, 1, (1, processors)))
    return Family(work, work @ costs), costs


@pytest.mark.parametrize("seed", range(5))
def test_costs_that_made_the_latencies_predict_unseen_ones(seed: int) -> None:
    rng = np.random.default_rng(seed)
    family, _ = made(rng)
    latency = family.latency_ms.copy()
    latency[rng.random(latency.shape) < 0.1] *= 3  # some measurements are simply wrong
    predicted = left_out(Family(family.work, latency), [str(i) for i in range(len(latency))])
    assert np.median(np.abs(predicted / family.latency_ms - 1)) < 0.05


def test_costs_are_never_negative_and_unseen_work_keeps_the_familys_cost() -> None:
    rng = np.random.default_rng(0)
    work = np.abs(rng.normal(1, 1, (8, 3)))
    work[:, 2] = 0
    costs = fit(work, work[:, 0] - 0.2 * np.minimum(work[:, 1], work[:, 0]) + 0.1, 0.1, np.array([1.0, 0.0, 7.0]))
    assert (costs >= 0).all() and costs[2] == 7.0


def test_a_processor_of_few_models_has_no_costs_of_its_own() -> None:
    family, _ = made(np.random.default_rng(1), models=12, processors=2)
    family.latency_ms[3:, 1] = np.nan
    assert np.isfinite(family.costs()).all(axis=0).tolist() == [True, False]


def test_leaving_out_leaves_out_every_name_of_an_architecture() -> None:
    keys = ("tv/resnet50@224", "timm/resnet50@224", "ncnn:resnet50_int8")
    assert {architecture(k) for k in keys} == {"resnet50"}
    assert architecture("own/mobilenet_v1_1@192") == architecture("ncnn:mobilenet_int8") == "mobilenet_v1_1"
    assert architecture("tv/vgg16_bn@224") == architecture("ncnn:vgg16") == "vgg16"
    assert architecture("tv/resnet18@224") != architecture("tv/resnet50@224")


@pytest.mark.parametrize("n", [12, 25])
def test_interval_holds_nine_of_ten_new_models(n: int) -> None:
    rng = np.random.default_rng(n)
    inside = []
    for _ in range(400):
        ratios = np.exp(rng.normal(0, 0.3, (n + 1, 1)) + rng.normal(0, 0.05, (n + 1, 3)))
        low, high = interval(ratios[:-1])
        inside.append(((ratios[-1] >= low) & (ratios[-1] <= high)).mean())
    # n models can promise at most (n - 1) / (n + 1)
    assert np.mean(inside) == pytest.approx(min(0.9, (n - 1) / (n + 1)), abs=0.06)


@pytest.mark.parametrize("family", FAMILIES[1:4:2], ids=lambda f: f[0])
def test_stated_intervals_hold_what_they_say(families: Families, family: tuple[str, str, str, str, int, int]) -> None:
    """On public measurements, architectures left out in turn: two of the smaller families; the benchmark shows all."""
    what, kind, runtime, precision, median, p90 = family
    found = accuracy(what, families.of(kind, runtime, precision), (median, p90))
    assert found.covered == pytest.approx(90, abs=4)
    assert found.median < 30
