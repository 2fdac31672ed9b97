"""Training and conversion to ONNX for edgeengine; nothing else in the project needs torch.

`export` turns a torch module into ONNX bytes that were compared with the module at several batch sizes.
`watch` trains the exercise classifier of the coach application and exports it.
"""

from edgeengine_converters.errors import ConversionError

__all__ = ["ConversionError", "__version__"]

__version__ = "0.1.0"
