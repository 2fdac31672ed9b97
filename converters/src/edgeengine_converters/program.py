"""An exported program of torch as a source: run for comparison, written as ONNX by torch's own exporter."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import metadata
from typing import Any

import numpy as np
import onnx
import torch
from torch import Tensor, nn
from torch.export import ExportedProgram
from torch.utils import _pytree as pytree

from edgeengine_converters.errors import ConversionError
from edgeengine_converters.export import EXAMPLE_BATCH, first_line, quiet, tidy
from edgeengine_converters.training_form import refuse_training

DEFAULT_OPSET = 18
_BATCH = "batch"


class TorchSource:
    """`program` with example inputs of `batch` rows. What edgeengine's `OpenSource` asks for."""

    def __init__(self, program: ExportedProgram, where: str, notes: list[str]) -> None:
        self._program, self._where, self.notes = program, where, notes
        refuse_training(program, where)
        self._names = list(program.graph_signature.user_inputs)
        self._examples, self._tree = _examples(program, self._names, where)
        self._axes = _batch_axes(program)
        self.free_batch = bool(self._axes)
        self._module = program.module()
        self.tools = {tool: metadata.version(tool) for tool in ("torch", "onnx", "onnxscript")}
        if not self.free_batch and not notes:
            self.notes.append(
                "the source fixes the batch, so the model does: "
                "export it with dynamic_shapes, Dim on axis 0, for a free one"
            )

    def export(self, opset: int | None) -> onnx.ModelProto:
        """By torch.onnx's exporter of exported programs. Raises ConversionError when it cannot."""
        with torch.no_grad():
            outputs = _outputs(self._call(self._examples), self._where)
        try:
            with quiet():
                written = torch.onnx.export(
                    self._program,
                    dynamo=True,
                    opset_version=DEFAULT_OPSET if opset is None else opset,
                    verbose=False,
                    external_data=False,
                    output_names=list(outputs),
                )
        except (torch.onnx.OnnxExporterError, RuntimeError, ValueError, TypeError) as error:
            raise ConversionError(
                f"torch cannot write it as ONNX ({first_line(error)})",
                where=self._where,
                fix="use other layers",
            ) from error
        assert written is not None  # None is what the older exporter returns
        return _name_batch(tidy(written.model_proto, "model"), self._axes)

    def feeds(self, batch: int, draw: int) -> dict[str, np.ndarray]:
        """Floats spread like the example's; other values are the example's rows over and over."""
        rng = np.random.default_rng([draw, batch])
        feeds = {}
        for name, example in self._examples.items():
            rows = np.arange(batch) % len(example) if name in self._axes else slice(None)
            values = example[rows] if example.ndim else example
            if values.dtype.kind == "f" and values.size and draw:
                spread, middle = float(example.std()) or 1.0, float(example.mean())
                values = np.asarray(middle + spread * rng.standard_normal(values.shape), values.dtype)
            feeds[name] = values
        return feeds

    def run(self, feeds: Mapping[str, np.ndarray]) -> list[np.ndarray]:
        """Raises ConversionError when the program does not run on them."""
        try:
            with torch.no_grad():
                return list(_outputs(self._call(feeds), self._where).values())
        except ConversionError:
            raise
        except (RuntimeError, ValueError, TypeError, AssertionError) as error:
            raise ConversionError(
                f"torch does not run it at another batch size ({first_line(error)})",
                where=self._where,
                fix="write the forward pass without sizes taken from the example",
            ) from error

    def _call(self, feeds: Mapping[str, np.ndarray]) -> Any:
        arguments, named = pytree.tree_unflatten(
            [torch.from_numpy(np.array(feeds[n])) for n in self._names], self._tree
        )
        return self._module(*arguments, **named)


def open_module(where: str, module: Any, examples: Any) -> TorchSource:
    """Export `module`, put into inference mode, with a free batch axis; with a fixed one where its forward pass fixes it.

    Axis 0 is the batch of every example tensor that is as long there as the first. Raises ConversionError.
    """
    if not isinstance(module, nn.Module):
        raise ConversionError(
            f"the callable's first result is {type(module).__name__}",
            where=where,
            fix="return a torch.nn.Module",
        )
    arguments, named = ((), examples) if isinstance(examples, dict) else (examples, {})
    arguments = tuple(arguments) if isinstance(arguments, tuple | list) else (arguments,)
    tensors = [*arguments, *named.values()]
    if not tensors or not all(isinstance(t, Tensor) for t in tensors):
        raise ConversionError(
            "example inputs are not all tensors",
            where=where,
            fix="return a tensor, a tuple or a dict of tensors",
        )
    notes = []
    if any(m.training for m in module.modules()):
        notes.append("the module was in training mode; it was converted in inference mode")
        try:
            module.eval()
        except Exception as error:
            raise ConversionError(
                f"cannot be put into inference mode ({first_line(error)})", where=where, fix="mend its eval()"
            ) from error
    size = next((t.shape[0] for t in tensors if t.ndim), None)

    def batched(tensor: Tensor) -> bool:
        return size is not None and tensor.ndim > 0 and tensor.shape[0] == size

    def example(tensor: Tensor) -> Tensor:
        # torch takes a size of 0 or 1 for a constant: such examples are repeated.
        return torch.cat([tensor] * EXAMPLE_BATCH) if batched(tensor) and size == 1 else tensor

    axis = torch.export.Dim(_BATCH)

    def free(tensor: Tensor) -> dict[int, Any]:
        return {0: axis} if batched(tensor) else {}

    try:
        with quiet(), torch.no_grad():
            program = torch.export.export(
                module,
                tuple(map(example, arguments)),
                {n: example(t) for n, t in named.items()},
                dynamic_shapes={n: free(t) for n, t in named.items()}
                if named
                else tuple(map(free, arguments)),
            )
    except Exception as error:  # noqa: BLE001  whatever the forward pass or the tracer raises: tried again with fixed sizes
        reason = first_line(error)
        program = _fixed(module, arguments, named, where)
        notes.append(f"the source fixes the batch at {size}, so the model does: {reason}")
    return TorchSource(program, where, notes)


def _fixed(
    module: nn.Module, arguments: tuple[Tensor, ...], named: dict[str, Tensor], where: str
) -> ExportedProgram:
    try:
        with quiet(), torch.no_grad():
            return torch.export.export(module, arguments, named)
    except Exception as error:
        raise ConversionError(
            f"torch cannot export it ({first_line(error)})", where=where, fix="mend its forward pass"
        ) from error


def _examples(program: ExportedProgram, names: list[Any], where: str) -> tuple[dict[str, np.ndarray], Any]:
    """Example inputs by name, and the tree of arguments that they fill in order. Raises ConversionError."""
    leaves, tree = pytree.tree_flatten(program.example_inputs)
    if not leaves or not all(isinstance(leaf, Tensor) for leaf in leaves) or len(leaves) != len(names):
        raise ConversionError(
            "has no example inputs, or some that are no tensors",
            where=where,
            fix="export it from tensors, and wrap a module that takes other values",
        )
    return {str(n): _array(leaf, where) for n, leaf in zip(names, leaves, strict=True)}, tree


def _array(tensor: Tensor, where: str) -> np.ndarray:
    """Raises ConversionError for values that numpy has no type for (bfloat16), or that are nowhere (device meta)."""
    try:
        return np.asarray(tensor.detach().cpu().numpy())
    except (TypeError, RuntimeError, NotImplementedError) as error:
        raise ConversionError(
            f"a tensor of {tensor.dtype} on {tensor.device} cannot be read ({first_line(error)})",
            where=where,
            fix="take and return tensors that numpy knows",
        ) from error


def _batch_axes(program: ExportedProgram) -> dict[str, str]:
    """Input name -> the symbol of its axis 0, for those inputs where that is free."""
    axes = {}
    for node in program.graph.nodes:
        if node.name in program.graph_signature.user_inputs:
            value = node.meta.get("val")
            if isinstance(value, Tensor) and value.ndim and not isinstance(value.shape[0], int):
                axes[node.name] = str(value.shape[0])
    return axes


def _outputs(made: Any, where: str) -> dict[str, np.ndarray]:
    """By name: the keys of a dict, else "output", or "output_0" and on. Raises ConversionError where there is no tensor."""
    if isinstance(made, Tensor):
        made = {"output": made}
    elif not isinstance(made, dict) or not all(isinstance(t, Tensor) for t in made.values()):
        leaves = pytree.tree_leaves(made)
        made = {f"output_{i}": t for i, t in enumerate(leaves) if isinstance(t, Tensor)}
    if not made:
        raise ConversionError("returns no tensor", where=where, fix="return what is to be computed")
    return {str(n): _array(t, where) for n, t in made.items()}


def _name_batch(model: onnx.ModelProto, axes: Mapping[str, str]) -> onnx.ModelProto:
    """Torch calls the free size s17 or the like; here it is "batch" where all inputs share it."""
    symbols = set(axes.values())
    if len(symbols) != 1:
        return model
    for value in (*model.graph.input, *model.graph.output):
        for dim in value.type.tensor_type.shape.dim:
            if dim.dim_param in symbols:
                dim.dim_param = _BATCH
    return model
