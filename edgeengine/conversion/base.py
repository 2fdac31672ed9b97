"""What a converter is: it recognises sources, and opens them as something that can be exported and run for comparison."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

import numpy as np

if TYPE_CHECKING:
    import onnx

Arrays = dict[str, np.ndarray]


class OpenSource(Protocol):
    """A model in its own form.

    `free_batch` says whether it runs at any batch size; where it does not, one of `notes` says why. `notes` are sentences
    for the user. `tools` are the versions of what the export depends on.
    """

    free_batch: bool
    notes: list[str]
    tools: dict[str, str]

    def export(self, opset: int | None) -> onnx.ModelProto:
        """The model as ONNX, weights inside, opset at least 18 where `opset` is None. Raises UserError when it cannot be."""
        ...

    def feeds(self, batch: int, draw: int) -> Arrays:
        """Inputs by the exported model's names, much like real ones; the same for the same `draw`. A fixed batch stays."""
        ...

    def run(self, feeds: Arrays) -> list[np.ndarray]:
        """The source's own results, in the order of the exported model's outputs. Raises UserError when it fails."""
        ...


class Converter(Protocol):
    """`name` is the entry point's. Nothing heavy is imported before `open`."""

    name: str

    def claims(self, source: str) -> bool:
        """Whether `source`, as typed by the user, is of its kind. Looks at the text only."""
        ...

    def open(self, source: str, shapes: Mapping[str, Sequence[int]], values: Mapping[str, np.ndarray]) -> OpenSource:
        """Open it. `shapes` and `values` fix inputs by name. Raises UserError for a source that is missing or refused."""
        ...
