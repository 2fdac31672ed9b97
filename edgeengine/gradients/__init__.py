"""Laptop side: training graphs. Any ONNX model in; gradient, optimizer, evaluation and inference graphs out, in plain ONNX.

Rules are in `rules/`, one table; `differentiate.py` walks a graph backwards; `graphs.py` puts the graphs together, and
`trainable.py` a bundle. Device-side folders never import this one.
"""

from edgeengine.gradients.formulations import Chooser
from edgeengine.gradients.graphs import Request, TrainingGraphs, training_graphs
from edgeengine.gradients.losses import LossOptions
from edgeengine.gradients.micro_steps import Pace
from edgeengine.gradients.trainable import build_trainable

__all__ = ["Chooser", "LossOptions", "Pace", "Request", "TrainingGraphs", "build_trainable", "training_graphs"]
