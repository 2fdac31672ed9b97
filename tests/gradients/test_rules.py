"""Every gradient rule against torch in double precision, and against differences of the forward pass itself."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("torch", reason="the reference of the gradient tests is torch (installed with converters)")

import torch

from edgeengine.gradients.rules import RULES
from tests.gradients.cases import Array, Case, loss_and_gradients
from tests.gradients.operators import all_cases

CASES = {c.name: c for c in all_cases()}
STEP = 2e-3


def reference(case: Case) -> tuple[tuple[int, ...], dict[str, Array]]:
    """The shape of Y, and gradients of sum(Y * weighting) by torch, as float64."""
    assert case.torch is not None
    tensors = {
        n: torch.tensor(a, dtype=torch.float64 if a.dtype == np.float32 else None, requires_grad=a.dtype == np.float32)
        for n, a in case.inputs.items()
    }
    y = case.torch(*tensors.values())
    (y * torch.tensor(case.weighting(tuple(y.shape)), dtype=torch.float64)).sum().backward()
    return tuple(y.shape), {n: t.grad.numpy() for n, t in tensors.items() if t.grad is not None}


@pytest.mark.parametrize("name", CASES)
def test_gradient_is_that_of_torch_and_of_differences(name: str) -> None:
    case = CASES[name]
    if case.torch is not None:
        shape, expected = reference(case)
        loss, gradients = loss_and_gradients(case, shape)
        assert gradients.keys() == expected.keys()
        for n, want in expected.items():
            assert gradients[n].shape == want.shape
            np.testing.assert_allclose(gradients[n], want, rtol=0, atol=case.tolerance * (np.abs(want).max() + 1e-9), err_msg=n)
    else:
        assert case.shape is not None
        loss, gradients = loss_and_gradients(case, case.shape)
    if not case.kinked:
        compare_with_differences(case, loss, gradients)


def compare_with_differences(case: Case, loss: object, gradients: dict[str, Array]) -> None:
    """Along one random direction per input. The forward pass is in single precision, so a slope is known to a percent or so."""
    assert callable(loss)
    for n, gradient in gradients.items():
        direction = np.random.default_rng([9, *n.encode()]).standard_normal(gradient.shape).astype(np.float32)
        ahead, behind = (loss({n: np.asarray(case.inputs[n] + sign * STEP * direction, np.float32)}) for sign in (1, -1))
        slope, scale = float(np.sum(gradient * direction)), float(np.linalg.norm(gradient)) + 0.1
        assert abs((ahead - behind) / (2 * STEP) - slope) < 0.03 * scale, n


def test_every_rule_has_a_case() -> None:
    from tests.gradients.operators import WITHOUT_CASE

    covered = {op for c in CASES.values() for op, *_ in c.nodes} | {"Mul", "ReduceSum"}
    assert set(RULES) - covered == WITHOUT_CASE


def test_there_are_enough_cases_of_every_source_opset() -> None:
    assert len(CASES) >= 400
    assert {c.opset for c in CASES.values()} >= {11, 12, 13, 14, 15, 17, 18, 19, 20, 21, 23}
