"""A training script of a CPU, as it is: data of its own, accumulation, clipping, AdamW."""

import torch
from torch import nn

WIDTH, CLASSES, BATCH = 64, 10, 16

model = nn.Sequential(
    nn.Linear(WIDTH, WIDTH), nn.LayerNorm(WIDTH), nn.ReLU(), nn.Linear(WIDTH, CLASSES)
)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
for step in range(4):
    optimizer.zero_grad()
    for _ in range(2):
        inputs, targets = torch.randn(BATCH, WIDTH), torch.randint(0, CLASSES, (BATCH,))
        loss = nn.functional.cross_entropy(model(inputs), targets) / 2
        loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    print(f"{step} {loss.item():.3f} {loss.detach().numpy().shape}")
