"""The costs of processors (see edgeengine.devices.costs), fitted to whole models measured on them.

Some ten to thirty models were measured on a processor, too few to tell a dozen costs apart. But processors of one family (one
runtime and precision) price work alike: their costs are shrunk towards the family's, each processor at a scale of its own. Both
fits are of the logarithm of latencies, robust to single models, with costs bounded to be non-negative (L-BFGS-B).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.optimize import minimize, nnls

from edgeengine.devices.costs import COSTS, amounts
from edgeengine.spec.features import Features

Array = np.ndarray

FAMILY_RIDGE, OWN_RIDGE = 0.3, 1.0  # how much a cost counts that one could do without; chosen once, for all families
ELBOW = 0.1  # of the logarithm: errors beyond it count linearly
LEAST = 4  # models that a processor's own costs need
ROUNDS = 4  # of fitting costs and scales in turn


def features_of(row: Mapping[str, str]) -> Features:
    """Of a line of model_features.csv."""

    def number(key: str) -> int:
        return int(float(row[key] or 0))

    return Features(
        dense=number("macs_dense"), pointwise=number("macs_pw"), grouped=number("macs_grouped"), depthwise=number("macs_dw"),
        fc=number("macs_fc"), attention=number("macs_attn"), parameters=number("params"), read=number("act_in_elems"),
        written=number("act_out_elems"), convolutions=number("n_conv"), depthwise_convolutions=number("n_dw"),
        matmuls=number("n_matmul"), elementwise=number("n_elementwise"), activations=number("n_activation"),
        moves=number("n_move"),
    )  # fmt: skip


def work_of(features: Sequence[Features]) -> Array:
    """[models, costs]: how much of each cost, in the order of COSTS."""
    return np.array([[amounts(f)[name] for name in COSTS] for f in features]).reshape(-1, len(COSTS))


@dataclass(frozen=True)
class Family:
    """`latency_ms` [models, processors], NaN where not measured; `work` [models, costs]."""

    work: Array
    latency_ms: Array

    def costs(self) -> Array:
        """[costs, processors], in ms per unit of work; NaN where a processor was measured with fewer than LEAST models."""
        known = np.isfinite(self.latency_ms)
        enough = known.sum(axis=0) >= LEAST
        result = np.full((self.work.shape[1], known.shape[1]), np.nan)
        if not enough.any():
            return result
        shared, scale = self._shared(known & enough)
        for p in np.flatnonzero(enough):
            mine = known[:, p]
            result[:, p] = fit(self.work[mine], self.latency_ms[mine, p], OWN_RIDGE, shared * scale[p])
        return result

    def _shared(self, known: Array) -> tuple[Array, Array]:
        """The family's costs, and the scale of each processor (NaN where nothing is known)."""
        models, processors = np.nonzero(known)
        logs = np.where(known, np.log(np.where(known, self.latency_ms, 1.0)), np.nan)
        scale = np.exp(_medians(logs))
        ridge = FAMILY_RIDGE * np.sqrt(len(models) / max(len(self.work), 1))
        shared = np.zeros(self.work.shape[1])
        for _ in range(ROUNDS):
            shared = fit(self.work[models], self.latency_ms[models, processors] / scale[processors], ridge)
            scale = np.exp(_medians(logs - np.log(self.work @ shared)[:, None]))
        return shared, scale


def fit(work: Array, latency_ms: Array, ridge: float, towards: Array | None = None) -> Array:
    """Non-negative costs of least robust logarithmic error, `ridge` drawing them `towards` others (zero).

    A cost whose work does not occur stays what it is drawn towards.
    """
    towards = np.zeros(work.shape[1]) if towards is None else towards
    seen = work.max(axis=0) > 0
    unit = 1 / np.where(seen, (work / latency_ms[:, None]).max(axis=0), 1.0)  # the largest share of a latency becomes 1
    scaled, aim = (work * unit)[:, seen], (towards / unit)[seen]

    def loss(cost: Array) -> tuple[float, Array]:
        predicted = scaled @ cost + 1e-12
        error = np.log(predicted / latency_ms)
        size = np.hypot(error, ELBOW)
        gradient = scaled.T @ (error / size / predicted) + 2 * ridge**2 * (cost - aim)
        return float((size - ELBOW).sum() + ridge**2 * ((cost - aim) ** 2).sum()), gradient

    relative = np.vstack([scaled / latency_ms[:, None], ridge * np.eye(len(aim))])
    start, _ = nnls(relative, np.concatenate([np.ones(len(latency_ms)), ridge * aim]))
    found = minimize(loss, start + 1e-4, jac=True, bounds=[(0, None)] * len(start), method="L-BFGS-B", options={"maxiter": 300})
    result = towards.copy()
    result[seen] = found.x * unit[seen]
    return result


def left_out(family: Family, of: Sequence[str]) -> Array:
    """[models, processors]: each latency predicted from costs that were fitted without any model of that name (`of`)."""
    names = np.array(of)
    predicted = np.full_like(family.latency_ms, np.nan)
    for name in dict.fromkeys(of):
        out = names == name
        predicted[out] = family.work[out] @ Family(family.work[~out], family.latency_ms[~out]).costs()
    return predicted


def _medians(values: Array) -> Array:
    """By column, of what is there; NaN where nothing is."""
    return np.array([np.median(c[np.isfinite(c)]) if np.isfinite(c).any() else np.nan for c in values.T])
