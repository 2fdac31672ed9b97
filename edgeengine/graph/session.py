"""ONNX Runtime sessions as this folder uses them: CPU, one thread, no spinning, made and dropped one at a time."""

from __future__ import annotations

import re
from pathlib import Path

import onnxruntime as ort
from onnxruntime.capi import onnxruntime_pybind11_state as state

# What a session raises on creation or run. ONNX Runtime shares no base class among them but Exception.
RUNTIME_ERRORS = (
    state.Fail,
    state.InvalidArgument,
    state.InvalidGraph,
    state.InvalidProtobuf,
    state.NoSuchFile,
    state.NotImplemented,
    state.NoModel,
    state.EPFail,
    state.EngineError,
    state.ModelLoaded,
    state.RuntimeException,
    RuntimeError,
    ValueError,
)

# "/src/div.h:256 onnxruntime::Div<T>::Div(const OpKernelInfo&) [with T = long int] ": file, line and function of a failed check.
_PLACE = re.compile(r"/\S+\.(?:cc|h):\d+ [^()]*\((?:[^()]|\([^()]*\))*\)(?: const)?(?: \[with [^\]]*\])? ")


def first_line(error: Exception) -> str:
    """ONNX Runtime's message, its first line, without the code it starts with and the places in its source."""
    line = (str(error).strip() or type(error).__name__).splitlines()[0]
    return _PLACE.sub("", line.split(" : ", 3)[-1].removeprefix("FAIL : "))


def create(
    model: str | bytes, optimized: bool, data_folder: Path | None = None, profile: str = "", lean: bool = False
) -> ort.InferenceSession:
    """A session on a model file (path) or serialized model whose external data lies in `data_folder`.

    `profile` is the prefix of a profile file to write, if any. `lean` is for large models: weights are used from where
    they are mapped, never packed into a copy, and freed activations go back at once.
    """
    options = ort.SessionOptions()
    level = ort.GraphOptimizationLevel
    options.graph_optimization_level = level.ORT_ENABLE_ALL if optimized else level.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1
    options.inter_op_num_threads = 1
    options.log_severity_level = 4  # what fails is raised
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    if lean:
        options.enable_cpu_mem_arena = False
        options.add_session_config_entry("session.disable_prepacking", "1")
    if profile:
        options.enable_profiling = True
        options.profile_file_prefix = profile
    if data_folder is not None:
        options.add_session_config_entry("session.model_external_initializers_file_folder_path", str(data_folder))
    return ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])
