"""ONNX models, read with the onnx package."""
