"""Intel OpenVINO (package onnxruntime-ep-openvino): integrated and discrete GPUs, and the NPU of Core Ultra processors.

Its CPU device is no processor: the cores are there already. No such hardware was at hand: see docs/design.md.
Options: https://onnxruntime.ai/docs/execution-providers/OpenVINO-ExecutionProvider.html
"""

from __future__ import annotations

from edgeengine.devices.providers.accelerator import Place, Row

OPENVINO = Row(
    "OpenVINOExecutionProvider",
    (Place("gpu-openvino", "gpu"), Place("npu-openvino", "npu")),
    package="onnxruntime_ep_openvino",
    known=frozenset({
        "cache_dir", "disable_dynamic_shapes", "enable_opencl_throttling", "enable_qdq_optimizer", "load_config",
        "model_priority", "num_of_threads", "num_streams", "precision", "reshape_input",
    }),
    static=True,
    context=True,
)  # fmt: skip
