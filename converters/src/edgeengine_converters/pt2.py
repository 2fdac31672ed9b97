"""Opens .pt2 files: archives that torch.export.save writes. Nothing in them is unpickled but plain tensors."""

import io
import json
import zipfile
from pathlib import Path

import torch

from edgeengine_converters.errors import ConversionError
from edgeengine_converters.export import first_line, quiet
from edgeengine_converters.program import TorchSource


def open_pt2(file: Path) -> TorchSource:
    """Load what torch.export.save wrote; whatever in it would need unpickling beyond plain tensors is refused."""
    _refuse_pickles(file)
    try:
        with quiet():
            program = torch.export.load(file)
    except Exception as error:
        raise ConversionError(
            f"cannot be loaded ({first_line(error)})", where=str(file), fix="save it again with this torch"
        ) from error
    return TorchSource(program, str(file), [])


def _refuse_pickles(file: Path) -> None:
    """torch.export.load unpickles what its archive marks as pickled, any class: such parts must pass as plain tensors."""
    where = str(file)
    try:
        with zipfile.ZipFile(file) as archive:
            names = archive.namelist()
            if not any(n.endswith("/archive_format") for n in names):
                raise ConversionError("not an archive of torch.export.save", where=where, fix="save it again")
            pickled = [n for n in names if "/sample_inputs/" in n]
            for config in (n for n in names if n.endswith("_config.json")):
                folder = config.rpartition("/")[0]
                entries = json.loads(archive.read(config))["config"].values()
                pickled += [f"{folder}/{e['path_name']}" for e in entries if e.get("use_pickle")]
            for name in pickled:
                torch.load(io.BytesIO(archive.read(name)), weights_only=True)
    except ConversionError:
        raise
    except Exception as error:
        raise ConversionError(
            f"holds what only unpickling would open, or is damaged ({first_line(error)})",
            where=where,
            fix="save a program of plain tensors with torch.export.save",
        ) from error
