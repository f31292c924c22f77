"""PyTorch execution traces (torch.profiler.ExecutionTraceObserver), read without PyTorch."""

from paracosm.graphs.importers.pytorch.join import OpTime
from paracosm.graphs.importers.pytorch.read import read_execution_trace

__all__ = ["OpTime", "read_execution_trace"]
