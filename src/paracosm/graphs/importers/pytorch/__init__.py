"""PyTorch execution traces (torch.profiler.ExecutionTraceObserver), read without PyTorch."""

from paracosm.graphs.importers.pytorch.read import read_execution_trace

__all__ = ["read_execution_trace"]
