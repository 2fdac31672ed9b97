"""PyTorch sources of `edgeengine convert`: `module:callable` and .pt2 files. torch is imported when one is opened.

The callable takes nothing and returns (module, example inputs): a torch.nn.Module, and a tensor, a tuple of tensors for its
positional arguments, or a dict for named ones. A .pt2 is what torch.export.save writes.
"""

from __future__ import annotations

import importlib
import os
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from edgeengine_converters.errors import ConversionError

if TYPE_CHECKING:
    from edgeengine_converters.program import TorchSource

_CALLABLE = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*")


class TorchConverter:
    """Claims module:callable and .pt2."""

    name = "torch"

    def claims(self, source: str) -> bool:
        return source.lower().endswith(".pt2") or _CALLABLE.fullmatch(source) is not None

    def open(
        self, source: str, shapes: Mapping[str, Sequence[int]], values: Mapping[str, np.ndarray]
    ) -> TorchSource:
        """Raises ConversionError for a source that is missing, not what it should be, or in training form."""
        if shapes or values:
            raise ConversionError(
                "takes no --shape and no --input", where=source, fix="its example inputs say both"
            )
        if source.lower().endswith(".pt2"):
            if not Path(source).is_file():
                raise ConversionError("no such file", where=source, fix="check the path")
            from edgeengine_converters.pt2 import open_pt2

            return open_pt2(Path(source))
        make = _find(source)
        from edgeengine_converters.program import open_module

        return open_module(source, *_made(make, source))


def _find(source: str) -> Any:
    name, _, attribute = source.partition(":")
    # As python -m does: a module in the current folder counts, also for the installed script.
    if os.getcwd() not in sys.path and "" not in sys.path:
        sys.path.insert(0, os.getcwd())
    importlib.invalidate_caches()
    try:
        found: Any = importlib.import_module(name)
    except (Exception, SystemExit) as error:  # a script without a main guard may end the process
        reason = f"{type(error).__name__}: {error}"
        raise ConversionError(
            f"module {name!r} cannot be imported ({reason})",
            where=source,
            fix="run from its folder, or install it",
        ) from error
    for part in attribute.split("."):
        found = getattr(found, part, None)
    if not callable(found):
        raise ConversionError(f"{name} has no callable {attribute!r}", where=source, fix="check the name")
    return found


def _made(make: Any, source: str) -> tuple[Any, Any]:
    try:
        made = make()
    except (Exception, SystemExit) as error:
        reason = f"{type(error).__name__}: {error}"
        raise ConversionError(f"the callable failed ({reason})", where=source, fix="mend it") from error
    if not isinstance(made, tuple) or len(made) != 2:
        raise ConversionError(
            f"the callable returned {type(made).__name__}",
            where=source,
            fix="return (module, example inputs)",
        )
    return made
