"""Checks that a third party's converter keeps the contract. Needs onnx, which is imported when it is called."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from edgeengine.conversion import Converter


def check_converter(converter: Converter, source: str, folder: Path) -> None:
    """Open `source`, export it into `folder`, compare at three batch sizes. Raises AssertionError saying what it found."""
    import numpy as np
    import onnx

    from edgeengine.conversion.checks import check_graph, check_loadable
    from edgeengine.conversion.compare import verify
    from edgeengine.errors import UserError

    assert converter.claims(source), f"{converter.name} does not claim {source!r}"
    assert not converter.claims("nothing.of.the.kind"), f"{converter.name} claims what is no source"
    opened = converter.open(source, {}, {})
    proto = opened.export(None)
    try:
        check_graph(proto, source)
        check_loadable(proto, source)
        onnx.save(proto, folder / "converted.onnx")
        verify(opened, str(folder / "converted.onnx"), source)
    except UserError as e:
        raise AssertionError(f"the exported model is refused: {e}") from e
    assert opened.free_batch or opened.notes, "a fixed batch is not explained in notes"
    assert opened.tools, "the versions of its tools are missing"
    first, again = opened.feeds(3, 1), opened.feeds(3, 1)
    assert set(first) >= {i.name for i in proto.graph.input}, "feeds() does not cover the model's inputs"
    assert all(np.array_equal(first[n], again[n]) for n in first), "feeds() differs between calls with the same draw"
    try:
        converter.open(f"{source}.missing" if ":" not in source else "no_such_module_here:make", {}, {})
    except UserError:
        return
    raise AssertionError(f"{converter.name} opens a source that does not exist")
