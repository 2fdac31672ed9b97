"""Converters by name: ONNX here, others from installed packages through the entry-point group `edgeengine.converters`."""

from __future__ import annotations

from importlib.metadata import entry_points
from pathlib import PurePath

from edgeengine.conversion.base import Converter
from edgeengine.conversion.onnx_source import OnnxConverter
from edgeengine.errors import UserError
from edgeengine.graph.session import first_line

# Files that only unpickling would open: it runs whatever code their author put in.
_PICKLED = (".pt", ".pth", ".ckpt", ".pkl", ".pickle", ".bin")
_ELSEWHERE = {
    ".h5": "Keras", ".keras": "Keras", ".tflite": "TensorFlow Lite", ".pb": "TensorFlow", ".safetensors": "weights alone",
}  # fmt: skip


def load_converters() -> dict[str, Converter]:
    """A fresh instance of each. Raises UserError when two claim one name or one cannot be made."""
    made: dict[str, Converter] = {OnnxConverter.name: OnnxConverter()}
    for entry in entry_points(group="edgeengine.converters"):
        if entry.name in made:
            raise UserError(f"converter {entry.name!r} is claimed by more than one package; uninstall all but one")
        try:
            made[entry.name] = entry.load()()
        except Exception as e:  # a stranger's package may fail in any way
            raise UserError(
                f"converter {entry.name!r} cannot be made ({first_line(e)}); install what it needs, or remove it"
            ) from e
    return made


def find_converter(source: str) -> Converter:
    """The converter of `source`. Raises UserError, saying what to do, where there is none or the source must not be opened."""
    suffix = PurePath(source).suffix.lower()
    if suffix in _PICKLED:
        raise UserError(
            f"{source}: a pickle, which may run any code when opened, so it is not; load it in code of your own and give "
            f"module:callable, which returns (module, example inputs), or save it with torch.export.save as .pt2"
        )
    if suffix in _ELSEWHERE:
        raise UserError(f"{source}: {_ELSEWHERE[suffix]}, which nothing here reads; export it to ONNX with its own tools")
    # A pip distribution that is broken should not keep .onnx files, which need none, from being converted.
    if OnnxConverter().claims(source):
        return OnnxConverter()
    for converter in load_converters().values():
        if converter.claims(source):
            return converter
    if suffix == ".pt2" or (":" in source and not suffix.startswith(".onnx")):
        raise UserError(f"{source}: needs torch; install the distribution edgeengine-converters (pip install ./converters)")
    raise UserError(f"{source}: not a source that is known; give a .onnx or .pt2 file, or module:callable")
