"""One model, as it is, as a CUDA graph with its optimizer, as graphed callables, or compiled."""

import sys

import torch
from torch import nn

WIDTH, BATCH, LAYERS = 64, 8, 6

how = sys.argv[1]
model = nn.Sequential(*[nn.Linear(WIDTH, WIDTH) for _ in range(LAYERS)]).cuda()
optimizer = torch.optim.Adam(model.parameters(), fused=True, capturable=True)
inputs = torch.randn(BATCH, WIDTH, device="cuda")


def step(forward: nn.Module) -> None:
    optimizer.zero_grad(set_to_none=True)
    forward(inputs).pow(2).mean().backward()
    optimizer.step()


if how == "graph":
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(5):
            step(model)
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step(model)
    while True:
        inputs.copy_(torch.randn(BATCH, WIDTH).pin_memory(), non_blocking=True)
        graph.replay()
elif how == "callables":
    model = torch.cuda.make_graphed_callables(model, (inputs.clone(),))
elif how == "compiled":
    model = torch.compile(model, mode="reduce-overhead")
while True:
    step(model)
