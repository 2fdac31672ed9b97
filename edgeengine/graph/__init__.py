"""Laptop side: load ONNX models, look into them, cut them into bundles. Device-side folders never import this one.

Imports onnx (protobuf) and onnxruntime. Everything that runs a model does so in a child process (`child.py`).
"""

from edgeengine.graph.build import build_bundle
from edgeengine.graph.inspection import inspect_model
from edgeengine.graph.lattice import Limits
from edgeengine.graph.load import load_model
from edgeengine.graph.measured import Measure
from edgeengine.graph.probed import Left
from edgeengine.graph.shapes import declared_inputs

__all__ = ["Left", "Limits", "Measure", "build_bundle", "declared_inputs", "inspect_model", "load_model"]
