"""Execution providers that special builds of ONNX Runtime bring along. A plugin package of the same name goes before.

One device each, the first: these do not list theirs. None of this hardware was at hand but where docs/design.md says so.
"""

from __future__ import annotations

from edgeengine.devices.providers.accelerator import Place, Row

BUILT_IN_ROWS = (
    Row(
        "CUDAExecutionProvider", (Place("gpu-cuda", "gpu"),),
        known=frozenset({
            "arena_extend_strategy", "cudnn_conv_algo_search", "cudnn_conv_use_max_workspace", "device_id", "enable_cuda_graph",
            "gpu_mem_limit", "use_tf32",
        }),
    ),
    Row(
        "TensorrtExecutionProvider", (Place("gpu-tensorrt", "gpu"),),
        known=frozenset({
            "device_id", "trt_engine_cache_enable", "trt_engine_cache_path", "trt_fp16_enable", "trt_int8_enable",
            "trt_max_workspace_size", "trt_timing_cache_enable",
        }),
    ),
    Row("MIGraphXExecutionProvider", (Place("gpu-migraphx", "gpu"),), known=frozenset({"device_id", "migraphx_fp16_enable"})),
    Row("DmlExecutionProvider", (Place("gpu-directml", "gpu"),), known=frozenset({"device_id", "performance_preference"})),
    Row(
        "CoreMLExecutionProvider", (Place("npu-coreml", "npu", {"MLComputeUnits": "CPUAndNeuralEngine"}),),
        known=frozenset({"MLComputeUnits", "ModelFormat", "RequireStaticInputShapes"}),
    ),
    Row("NnapiExecutionProvider", (Place("npu-nnapi", "npu"),)),
    Row("VitisAIExecutionProvider", (Place("npu-vitisai", "npu"),), known=frozenset({"config_file", "cache_dir"}), static=True),
    Row("RknpuExecutionProvider", (Place("npu-rknpu", "npu"),), static=True),
    Row("CANNExecutionProvider", (Place("npu-cann", "npu"),), known=frozenset({"device_id", "npu_mem_limit"})),
)  # fmt: skip
