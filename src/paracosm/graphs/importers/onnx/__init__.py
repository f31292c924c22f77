"""ONNX models, read without the onnx package."""

from paracosm.graphs.importers.onnx.read import read_onnx

__all__ = ["read_onnx"]
