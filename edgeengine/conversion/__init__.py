"""Laptop side: models from elsewhere become ONNX files that were compared with their source, and smaller ones on request.

Imports onnx and onnxruntime, never torch: PyTorch sources come through the entry-point group `edgeengine.converters`.
"""

from edgeengine.conversion.base import Converter, OpenSource
from edgeengine.conversion.convert import Converted, Request, convert
from edgeengine.conversion.registry import find_converter, load_converters

__all__ = ["Converted", "Converter", "OpenSource", "Request", "convert", "find_converter", "load_converters"]
