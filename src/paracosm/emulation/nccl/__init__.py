"""A libnccl.so.2 whose other ranks are not there, for PyTorch's own ProcessGroupNCCL."""
