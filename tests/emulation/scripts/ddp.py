"""Train a small network data-parallel with DistributedDataParallel."""

from __future__ import annotations

import argparse
import contextlib
import itertools

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


class Network(nn.Module):
    """A multilayer perceptron; `unused` adds a layer that every other forward pass leaves out."""

    def __init__(self, hidden: int, layers: int, batch_norm: bool, unused: bool) -> None:
        super().__init__()
        widths = [16, *[hidden] * layers]
        self.hidden = nn.ModuleList(nn.Linear(a, b) for a, b in itertools.pairwise(widths))
        self.norm = nn.BatchNorm1d(hidden) if batch_norm else nn.Identity()
        self.sometimes = nn.Linear(hidden, hidden) if unused else None
        self.last = nn.Linear(hidden, 4)
        self.calls = 0

    def forward(self, inputs: torch.Tensor) -> dict[str, torch.Tensor]:
        for layer in self.hidden:
            inputs = torch.relu(layer(inputs))
        inputs = self.norm(inputs)
        self.calls += 1
        if self.sometimes is not None and self.calls % 2:
            inputs = self.sometimes(inputs)
        return {"scores": self.last(inputs)}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--backend", default="gloo")
    parser.add_argument("--init-method", default=None)
    parser.add_argument("--hidden", type=int, default=64)
    parser.add_argument("--layers", type=int, default=3)
    parser.add_argument("--accumulate", type=int, default=1, help="backward passes of a step")
    parser.add_argument("--workers", type=int, default=0, help="of the data loader")
    parser.add_argument("--start-method", default=None, help="of the data loader's workers")
    parser.add_argument("--sampler", action="store_true", help="each rank has its own data")
    parser.add_argument("--batch-norm", action="store_true")
    parser.add_argument("--find-unused-parameters", action="store_true")
    parser.add_argument("--static-graph", action="store_true")
    parser.add_argument("--gradient-as-bucket-view", action="store_true")
    parser.add_argument("--bucket-cap-mb", type=float, default=25)
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--zero", action="store_true", help="shard the optimizer's state")
    options = parser.parse_args()

    torch.set_num_threads(1)
    torch.manual_seed(0)
    dist.init_process_group(options.backend, init_method=options.init_method)
    assert dist.get_backend() == options.backend
    network = Network(
        options.hidden, options.layers, options.batch_norm, options.find_unused_parameters
    )
    model = DistributedDataParallel(
        network,
        find_unused_parameters=options.find_unused_parameters,
        static_graph=options.static_graph,
        gradient_as_bucket_view=options.gradient_as_bucket_view,
        bucket_cap_mb=options.bucket_cap_mb,
    )
    if options.compile:
        model = torch.compile(model, backend="eager")
    optimizer: torch.optim.Optimizer
    if options.zero:
        from torch.distributed.optim import ZeroRedundancyOptimizer

        optimizer = ZeroRedundancyOptimizer(model.parameters(), torch.optim.SGD, lr=0.1)
    else:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    inputs = torch.randn(4096, 16)
    data = TensorDataset(inputs, inputs[:, :4].argmax(dim=1))
    loader = DataLoader(
        data,
        batch_size=16,
        sampler=DistributedSampler(data, shuffle=False) if options.sampler else None,
        num_workers=options.workers,
        multiprocessing_context=options.start_method,
    )
    batches = (batch for _ in itertools.count() for batch in loader)
    for _ in range(options.steps):
        optimizer.zero_grad()
        for part in range(options.accumulate):
            last = part == options.accumulate - 1
            with contextlib.nullcontext() if last else model.no_sync():
                features, labels = next(batches)
                loss = nn.functional.cross_entropy(model(features)["scores"], labels)
                loss.backward()
        optimizer.step()
    model.eval()
    with torch.no_grad():
        loss = nn.functional.cross_entropy(model(inputs[:64])["scores"], data.tensors[1][:64])
    if dist.get_rank() == 0:
        print(f"final loss {loss.item():.6f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
