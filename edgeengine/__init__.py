"""edgeengine: several ONNX models under deadlines on the processors of one small device, live or simulated."""

__version__ = "0.1.0"
