"""Predicts the latency of configurations from those measured: a roofline per processor, corrected by a Gaussian process.

The roofline (see `features.py`) is fitted to the measured latencies by non-negative least squares of the relative error, so each
cost has its physical sign. What it misses (fusions, layouts, caches) varies smoothly along the model, and by processor and batch:
a Gaussian process over those regresses the logarithm of the ratio (Rasmussen, Williams, "Gaussian Processes for Machine
Learning", 2006, ch. 2 and 5), and says how sure it is. Needs scikit-learn, the extra `fit`.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from edgeengine.errors import UserError
from edgeengine.profiling.features import Configuration, roofline_features
from edgeengine.spec import SubgraphSpec

# Keeps the roofline's coefficients small where few measurements tell them apart; relative, as is the error.
_RIDGE = 0.03
_LEAST_NS = 1_000.0  # no call costs less


@dataclass(frozen=True)
class Prediction:
    """Per configuration: `median_ns`, and `deviation`, the standard deviation of its logarithm (0.1: about 10 %)."""

    median_ns: np.ndarray
    deviation: np.ndarray


class Predictor:
    """For one list of configurations of one model; `segments` are its single segments, in order.

    Raises UserError where scikit-learn is not installed.
    """

    def __init__(self, configurations: Sequence[Configuration], segments: Sequence[SubgraphSpec]):
        _require_scikit_learn()
        self._work = roofline_features(configurations, segments)
        names = sorted({c.processor.name for c in configurations})
        self._processor = np.array([names.index(c.processor.name) for c in configurations])
        place = [(c.subgraph.start / len(segments), c.subgraph.stop / len(segments)) for c in configurations]
        batch = np.log2([c.batch for c in configurations])
        self._where = np.column_stack([place, batch, np.eye(len(names))[self._processor]])

    def fit(self, measured: Mapping[int, float]) -> Prediction:
        """Predict all, given latencies in nanoseconds by index into the configurations.

        Infinite on a processor where none is given.
        """
        known = np.fromiter(measured, np.int64)
        latency_ns = np.fromiter(measured.values(), np.float64)
        reached = np.isin(self._processor, self._processor[known])
        median_ns, deviation = np.full(len(reached), np.inf), np.zeros(len(reached))
        if len(known):
            roofline = self._roofline(known, latency_ns)
            ratio, deviation[reached] = self._correction(known, np.log(latency_ns / roofline[known]), np.log(roofline), reached)
            median_ns[reached] = roofline[reached] * np.exp(ratio)
        return Prediction(median_ns, deviation)

    def _roofline(self, known: np.ndarray, latency_ns: np.ndarray) -> np.ndarray:
        from scipy.optimize import nnls

        result = np.full(len(self._work), _LEAST_NS)
        for processor in np.unique(self._processor[known]):
            of = self._processor[known] == processor
            relative = self._work[known[of]] / latency_ns[of, None]
            scale = np.maximum(relative.max(axis=0), np.finfo(float).tiny)
            ridge = _RIDGE * np.eye(len(scale))
            target = np.concatenate([np.ones(of.sum()), np.zeros(len(scale))])
            coefficients, _ = nnls(np.vstack([relative / scale, ridge]), target)
            mine = self._processor == processor
            result[mine] = np.maximum(self._work[mine] @ (coefficients / scale), _LEAST_NS)
        return result

    def _correction(
        self, known: np.ndarray, target: np.ndarray, size: np.ndarray, wanted: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """(mean, standard deviation) of log(latency / roofline) at those `wanted`; `size` is the logarithm of the roofline."""
        from sklearn.exceptions import ConvergenceWarning
        from sklearn.gaussian_process import GaussianProcessRegressor
        from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel

        inputs = np.column_stack([self._where, size / 3])
        lengths = [0.3, 0.3, *np.ones(inputs.shape[1] - 2)]
        kernel = ConstantKernel(0.02, (1e-4, 1)) * RBF(lengths, (0.05, 20)) + WhiteKernel(0.003, (1e-4, 0.1))
        with warnings.catch_warnings():
            # A length at its bound is a direction without influence.
            warnings.simplefilter("ignore", ConvergenceWarning)
            process: Any = GaussianProcessRegressor(kernel).fit(inputs[known], target)
        mean, deviation = process.predict(inputs[wanted], return_std=True)
        return mean, deviation


def _require_scikit_learn() -> None:
    try:
        import sklearn  # noqa: F401
    except ImportError as e:
        raise UserError("predicting latencies needs scikit-learn: pip install 'edgeengine[fit]', or measure everything") from e
