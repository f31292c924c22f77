"""A compiled module whose element-wise ops are one chain, forward and backward."""

import torch
from torch import nn

SIZE = 1 << 20


class Chain(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(SIZE, device="cuda"))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(x * 2 + 1) * self.scale


model = torch.compile(Chain())
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(10):
    x = torch.empty(SIZE, device="cuda")
    torch.cuda.synchronize()
    result = model(x)
    torch.cuda.synchronize()
    result.backward(torch.empty_like(result))
    optimizer.step()
    optimizer.zero_grad()
