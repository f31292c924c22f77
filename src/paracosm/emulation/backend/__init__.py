"""Backend mode: a torch.distributed backend whose collectives take modelled time."""
