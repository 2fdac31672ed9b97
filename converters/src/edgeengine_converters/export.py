"""Turns a torch module into ONNX bytes that were checked (see `verify`), or refuses."""

import io
import logging
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass

import onnx
import torch
from torch import Tensor, nn

from edgeengine_converters.errors import ConversionError
from edgeengine_converters.verify import MAX_IR, OPSETS, check_structure, differences

EXAMPLE_BATCH = 2
CHECK_BATCHES = (1, 3, 8)


@dataclass(frozen=True)
class Exported:
    """A verified model: the .onnx file's bytes, and the largest absolute difference at each batch size."""

    content: bytes
    opset: int
    ir_version: int
    differences: dict[int, float]


def export(
    module: nn.Module,
    sample: Callable[[int], Tensor],
    *,
    name: str,
    input_name: str,
    output_name: str,
    opset: int = 18,
    batches: Sequence[int] = CHECK_BATCHES,
    max_bytes: int = 1 << 20,
) -> Exported:
    """Exports `module`, one tensor in and one tensor out, both with the batch as axis 0 and dynamic.

    `sample(batch)` gives an input tensor [batch, ...]; it should look like real input, because torch and
    onnxruntime are compared on it at each of `batches`. The module is exported with a batch of
    `EXAMPLE_BATCH`, which `batches` may not hold, and is left in inference mode. `name` becomes the name of
    the graph and says in errors which model is meant.

    Raises ConversionError when an argument is out of range or the module or the exported graph is refused.
    """
    if opset not in OPSETS:
        raise ConversionError(f"opset {opset}", where=name, fix=f"use {OPSETS.start} to {OPSETS.stop - 1}")
    if len(set(batches)) < 3 or EXAMPLE_BATCH in batches or min(batches) < 1:
        raise ConversionError(
            f"check batches {tuple(batches)}",
            where=name,
            fix=f"give three different sizes of at least 1 without {EXAMPLE_BATCH}, the exported size",
        )
    module.eval()
    model = tidy(_graph(module, sample(EXAMPLE_BATCH), name, input_name, output_name, opset), name)
    check_structure(model, name, input_name, output_name)
    content = model.SerializeToString(deterministic=True)
    if len(content) > max_bytes:
        raise ConversionError(
            f"{len(content)} bytes, the limit is {max_bytes}", where=name, fix="make the network smaller"
        )
    return Exported(content, opset, model.ir_version, differences(content, module, sample, batches, name))


def _graph(
    module: nn.Module, example: Tensor, name: str, input_name: str, output_name: str, opset: int
) -> onnx.ModelProto:
    """The model as torch's exporter writes it, with nothing on the terminal."""
    try:
        with quiet():
            program = torch.onnx.export(
                module,
                (example,),
                dynamo=True,
                opset_version=opset,
                verbose=False,
                external_data=False,
                input_names=[input_name],
                output_names=[output_name],
                dynamic_shapes=({0: torch.export.Dim("batch")},),
            )
    # The exporter wraps what goes wrong inside it; a module's own forward pass raises the others.
    except (torch.onnx.OnnxExporterError, RuntimeError, ValueError, TypeError) as error:
        raise ConversionError(
            f"torch cannot export it with a free batch axis ({first_line(error)})",
            where=name,
            fix="write the forward pass without sizes taken from the example",
        ) from error
    assert program is not None  # None is what the older exporter returns
    return program.model_proto


def first_line(error: BaseException) -> str:
    """What went wrong, in one line: the cause's where the exporter wrapped one."""
    return (str(error.__cause__ or error).strip() or type(error).__name__).splitlines()[0]


@contextmanager
def quiet() -> Iterator[None]:
    """Keeps the exporter's progress lines, notes and warnings off the terminal."""
    previous = logging.root.manager.disable
    logging.disable(logging.ERROR)
    try:
        with warnings.catch_warnings(), redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(previous)


def tidy(model: onnx.ModelProto, name: str) -> onnx.ModelProto:
    """Names the graph and removes the exporter's notes: they hold stack traces with paths of this machine."""
    graph = model.graph
    del model.metadata_props[:], graph.metadata_props[:], graph.value_info[:]
    for entry in (*graph.node, *graph.initializer, *graph.input, *graph.output):
        del entry.metadata_props[:]
        entry.doc_string = ""
    model.doc_string = graph.doc_string = ""
    graph.name = name
    # Older IR versions hold everything these graphs use, and more runtimes read them; a new opset needs a new one.
    needed = onnx.helper.find_min_ir_version_for(list(model.opset_import))
    model.ir_version = min(model.ir_version, max(MAX_IR, needed))
    return model
