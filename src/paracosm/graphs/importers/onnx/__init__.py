"""ONNX models, read without the onnx package."""
