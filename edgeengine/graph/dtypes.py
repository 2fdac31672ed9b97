"""Element types under their three names: ONNX enum, ONNX Runtime's text, and ours (numpy's, "str" for strings).

A type missing here has no numpy form that ONNX Runtime can take and give, so no boundary can carry it.
"""

from __future__ import annotations

import numpy as np
import onnx

_T = onnx.TensorProto

# (ONNX enum, ONNX Runtime's name, our name)
_ROWS: tuple[tuple[int, str, str], ...] = (
    (_T.FLOAT, "tensor(float)", "float32"),
    (_T.DOUBLE, "tensor(double)", "float64"),
    (_T.FLOAT16, "tensor(float16)", "float16"),
    (_T.INT8, "tensor(int8)", "int8"),
    (_T.INT16, "tensor(int16)", "int16"),
    (_T.INT32, "tensor(int32)", "int32"),
    (_T.INT64, "tensor(int64)", "int64"),
    (_T.UINT8, "tensor(uint8)", "uint8"),
    (_T.UINT16, "tensor(uint16)", "uint16"),
    (_T.UINT32, "tensor(uint32)", "uint32"),
    (_T.UINT64, "tensor(uint64)", "uint64"),
    (_T.BOOL, "tensor(bool)", "bool"),
    (_T.STRING, "tensor(string)", "str"),
)
FROM_ONNX = {enum: ours for enum, _, ours in _ROWS}
TO_ONNX = {ours: enum for enum, _, ours in _ROWS}
FROM_ORT = {text: ours for _, text, ours in _ROWS}

FLOATS = frozenset({_T.FLOAT, _T.DOUBLE, _T.FLOAT16, _T.BFLOAT16})


def numpy_dtype(name: str) -> np.dtype:
    """The numpy dtype of one of our names; strings are objects, as ONNX Runtime gives them."""
    return np.dtype(object if name == "str" else name)
