"""PyTorch execution traces (torch.profiler.ExecutionTraceObserver), read without PyTorch."""
