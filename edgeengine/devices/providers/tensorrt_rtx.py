"""NVIDIA TensorRT-RTX (package onnxruntime-ep-nv-tensorrt-rtx): RTX GPUs, compiled ahead on first use.

No such hardware was at hand. Options: https://onnxruntime.ai/docs/execution-providers/TensorRTRTX-ExecutionProvider.html
"""

from __future__ import annotations

from edgeengine.devices.providers.accelerator import Place, Row

TENSORRT_RTX = Row(
    "NvTensorRTRTXExecutionProvider",
    (Place("gpu-tensorrt-rtx", "gpu"),),
    package="onnxruntime_ep_nv_tensorrt_rtx",
    known=frozenset({
        "device_id", "enable_cuda_graph", "nv_cuda_graph_enable", "nv_dump_subgraphs", "nv_max_workspace_size",
        "nv_multi_profile_enable", "nv_profile_max_shapes", "nv_profile_min_shapes", "nv_profile_opt_shapes",
        "nv_runtime_cache_path",
    }),
    context=True,
)  # fmt: skip
