"""WebGPU (package onnxruntime-ep-webgpu): any GPU with a Vulkan, Metal or Direct3D 12 driver."""

from __future__ import annotations

from edgeengine.devices.providers.accelerator import Place, Row

WEBGPU = Row(
    "WebGpuExecutionProvider",
    (Place("gpu-webgpu", "gpu"),),
    package="onnxruntime_ep_webgpu",
    known=frozenset({
        "dawnBackendType", "enableGraphCapture", "forceCpuNodeNames", "powerPreference", "preferredLayout", "validationMode",
    }),
)  # fmt: skip
