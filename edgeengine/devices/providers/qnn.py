"""Qualcomm QNN (package onnxruntime-qnn): the Hexagon NPU (HTP backend) and the Adreno GPU. Its CPU backend is no processor.

On x86-64 Linux the HTP library is an emulator: right in what it takes and computes, meaningless in speed.
Options: https://onnxruntime.ai/docs/execution-providers/QNN-ExecutionProvider.html
"""

from __future__ import annotations

import platform

from edgeengine.devices.providers.accelerator import Place, Row

# The emulator must be told which chip to be, or most graphs fail when the session is created. 0 is the chip it runs on.
SOC_MODEL = {"soc_model": "60" if platform.machine() in ("x86_64", "AMD64") else "0"}

QNN = Row(
    "QNNExecutionProvider",
    (
        Place("npu-qnn", "npu", SOC_MODEL, {"backend_path": "get_qnn_htp_path"}),
        Place("gpu-qnn", "gpu", SOC_MODEL, {"backend_path": "get_qnn_gpu_path"}),
    ),
    package="onnxruntime_qnn",
    known=frozenset({
        "backend_path", "device_id", "disable_file_mapped_weights", "enable_htp_fp16_clamp_overflow", "enable_htp_fp16_precision",
        "enable_htp_shared_memory_allocator", "enable_htp_spill_fill_buffer", "extended_udma", "htp_arch",
        "htp_graph_finalization_optimization_mode", "htp_performance_mode", "offload_graph_io_quantization",
        "op_packages", "profiling_file_path", "profiling_level", "qnn_context_priority", "rpc_control_latency",
        "skip_qnn_version_check", "soc_model", "vtcm_mb",
    }),
    static=True,
    context=True,
)  # fmt: skip
