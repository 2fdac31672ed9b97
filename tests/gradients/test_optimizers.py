"""The optimizer graph step by step against torch, and against the formulas where torch has none."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from edgeengine.errors import UserError
from edgeengine.gradients.optimizers import OPTIMIZERS, optimizer_graph
from edgeengine.graph.session import create

Array = np.ndarray
Arrays = dict[str, Array]
SHAPES = {"w": (3, 4), "b": (4,)}
STEPS, LR = 6, 0.05


def start() -> Arrays:
    rng = np.random.default_rng(0)
    return {n: rng.standard_normal(s).astype(np.float32) for n, s in SHAPES.items()}


def gradients() -> list[Arrays]:
    rng = np.random.default_rng(1)
    return [{n: rng.standard_normal(s).astype(np.float32) for n, s in SHAPES.items()} for _ in range(STEPS)]


def ours(name: str, decay: float = 0.0, clip: float | None = None, **hyper: float) -> tuple[Arrays, list[float]]:
    """The parameters after all steps, and the norms of the gradients."""
    row = OPTIMIZERS[name]
    session = create(optimizer_graph(row, SHAPES, ["w"], 20, decay, clip, hyper).SerializeToString(), optimized=True)
    wanted = {i.name for i in session.get_inputs()}
    state = start() | {f"{p}/{s}": np.zeros(shape, np.float32) for p, shape in SHAPES.items() for s in row.slots}
    norms = []
    for k, grads in enumerate(gradients()):
        scalars = {"lr": np.array(LR, np.float32), "step": np.array(k + 1, np.float32)}
        feeds = state | scalars | {f"{p}/gradient": g for p, g in grads.items()}
        found = dict(
            zip(
                [o.name for o in session.get_outputs()],
                session.run(None, {n: a for n, a in feeds.items() if n in wanted}),
                strict=True,
            )
        )
        norms.append(float(found["gradient_norm"]))
        state = {n: found[f"{n}/next"] for n in state}
    return {n: state[n] for n in SHAPES}, norms


def by_torch(make: Callable[[Any], Any], clip: float | None = None) -> Arrays:
    torch = pytest.importorskip("torch", reason="the reference is torch (installed with converters)")
    tensors = {n: torch.tensor(a, requires_grad=True) for n, a in start().items()}
    optimizer = make(tensors)
    for grads in gradients():
        for n, g in grads.items():
            tensors[n].grad = torch.tensor(g)
        if clip:
            torch.nn.utils.clip_grad_norm_(list(tensors.values()), clip)
        optimizer.step()
    return {n: t.detach().numpy() for n, t in tensors.items()}


def _groups(tensors: Any, decay: float) -> list[dict[str, Any]]:
    return [{"params": [tensors["w"]], "weight_decay": decay}, {"params": [tensors["b"]], "weight_decay": 0.0}]


TORCH: dict[str, tuple[str, dict[str, float]]] = {
    "sgd": ("SGD", {}),
    "momentum": ("SGD", {"momentum": 0.9}),
    "nesterov": ("SGD", {"momentum": 0.9, "nesterov": True}),
    "adam": ("Adam", {}),
    "adamw": ("AdamW", {}),
}


@pytest.mark.parametrize("clip", [None, 0.5, 1e6])
@pytest.mark.parametrize("decay", [0.0, 0.1])
@pytest.mark.parametrize("name", TORCH)
def test_steps_are_those_of_torch(name: str, decay: float, clip: float | None) -> None:
    torch = pytest.importorskip("torch", reason="the reference is torch (installed with converters)")
    kind, options = TORCH[name]
    expected = by_torch(lambda t: getattr(torch.optim, kind)(_groups(t, decay), lr=LR, **options), clip)
    found, norms = ours(name, decay, clip)
    for n, want in expected.items():
        np.testing.assert_allclose(found[n], want, rtol=2e-5, atol=2e-6, err_msg=n)
    first = gradients()[0]
    assert norms[0] == pytest.approx(np.sqrt(sum((g.astype(np.float64) ** 2).sum() for g in first.values())), rel=1e-5)


def test_lion_is_its_formula() -> None:
    found, _ = ours("lion", 0.1)
    for n, decay in (("w", 0.1), ("b", 0.0)):
        p, m = start()[n].astype(np.float64), 0.0
        for grads in gradients():
            g = grads[n].astype(np.float64)
            p = p * (1 - LR * decay) - LR * np.sign(0.9 * m + 0.1 * g)
            m = 0.99 * m + 0.01 * g
        np.testing.assert_allclose(found[n], p, rtol=1e-5, atol=1e-6)


def test_mixed_clipping_is_its_formula_and_bounds_the_step() -> None:
    nu, gamma, beta = 0.7, 0.05, 0.999
    found, _ = ours("mixclip", gamma=gamma)
    for n in SHAPES:
        p, m = start()[n].astype(np.float64), np.zeros(SHAPES[n])
        for grads in gradients():
            g, before = grads[n].astype(np.float64), p
            m = beta * m + (1 - beta) * g
            p = p - LR * (nu * m / (1 + LR * np.linalg.norm(m) / gamma) + (1 - nu) * g / (1 + LR * np.linalg.norm(g) / gamma))
            assert np.linalg.norm(p - before) <= gamma
        np.testing.assert_allclose(found[n], p, rtol=1e-5, atol=1e-6)


def test_unknown_constants_are_refused() -> None:
    with pytest.raises(UserError, match="no constant 'beta3'"):
        ours("adam", beta3=0.5)
