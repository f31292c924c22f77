"""Custom ops: one that is opaque, but has a fake kernel, and one that is made of PyTorch's ops."""

import numpy as np
import torch

WIDTH = 64
device = torch.device("cuda")


@torch.library.custom_op("mine::opaque", mutates_args=())
def opaque(x: torch.Tensor) -> torch.Tensor:
    return torch.from_numpy(np.sin(x.numpy()))


@opaque.register_fake
def _(x: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(x)


@torch.library.custom_op("mine::composed", mutates_args=())
def composed(x: torch.Tensor) -> torch.Tensor:
    return x.sin() @ x.T


model = torch.nn.Linear(WIDTH, WIDTH).to(device)
optimizer = torch.optim.AdamW(model.parameters(), fused=True)
x = torch.randn(WIDTH, WIDTH, device=device)
for _ in range(10):
    composed(opaque(x))
    model(x).mean().backward()
    optimizer.step()
    optimizer.zero_grad()
