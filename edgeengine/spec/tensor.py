"""What a tensor looks like at a boundary: name, element type, shape."""

from __future__ import annotations

import msgspec

from edgeengine.errors import UserError


class TensorSpec(msgspec.Struct, frozen=True):
    """`dtype` is the numpy name ("float32", "int64", "bool", "float16", "str" for ONNX strings).

    `shape` holds an int per known dimension and a name per symbolic one ("batch", or "?" where the model gives none).
    """

    name: str
    dtype: str
    shape: tuple[int | str, ...]

    @property
    def is_static(self) -> bool:
        return all(isinstance(d, int) for d in self.shape)

    @property
    def dims(self) -> tuple[int, ...]:
        """The static shape. Raises UserError while a dimension is symbolic."""
        if not self.is_static:
            raise UserError(f"tensor {self.name!r} has shape {self.shape}: fix its dimensions with --shape at the build")
        return tuple(d for d in self.shape if isinstance(d, int))

    @property
    def nbytes(self) -> int | None:
        """Bytes of one dense copy, or None while a dimension is symbolic or the elements have no fixed size."""
        size = ITEM_BYTES.get(self.dtype)
        if size is None:
            return None
        for d in self.shape:
            if not isinstance(d, int):
                return None
            size *= d
        return size


ITEM_BYTES = {
    "float32": 4, "float64": 8, "float16": 2, "bfloat16": 2,
    "int8": 1, "int16": 2, "int32": 4, "int64": 8,
    "uint8": 1, "uint16": 2, "uint32": 4, "uint64": 8,
    "bool": 1, "complex64": 8, "complex128": 16,
}  # fmt: skip


def format_shape(shape: tuple[int | str, ...] | list[int]) -> str:
    """(1, 3, 224) -> "1x3x224"; rank 0 -> "scalar"."""
    return "x".join(str(d) for d in shape) if len(shape) else "scalar"


def parse_shape(text: str, where: str) -> tuple[int, ...]:
    """ "1x3x224x224" -> (1, 3, 224, 224). Raises UserError naming `where` for anything else."""
    if text == "scalar":
        return ()
    try:
        dims = tuple(int(d) for d in text.lower().split("x"))
    except ValueError as e:
        raise UserError(f"{where}: shape {text!r} is not like 1x3x224x224") from e
    if any(d < 0 for d in dims):
        raise UserError(f"{where}: shape {text!r} has a negative dimension; give the size to run with")
    return dims
