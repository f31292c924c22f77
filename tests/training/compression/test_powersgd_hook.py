"""PowerSGD from the first update to the last, against the hook of PyTorch in two real processes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed as dist
from small_network import data, initial
from torch.multiprocessing import start_processes
from torch.nn.functional import cross_entropy

from paracosm.models.shards import BatchSampler, make_shards
from paracosm.rng import TrainingStream, generator, integer_seed
from paracosm.training import TrainConfig, train

SEED, WORKERS, BATCH, LR, UPDATES, START = 5, 2, 4, 0.2, 20, 6
RANKS = (1, 2)


def batches(worker: int) -> BatchSampler:
    shards = make_shards(data()[1], WORKERS, "iid", generator(SEED, TrainingStream.SHARDS))
    return BatchSampler(shards[worker], BATCH, generator(SEED, TrainingStream.BATCHES, worker))


def first_factors(rank: int) -> dict[tuple[int, int], torch.Tensor]:
    """Return the Q that each matrix which is factored begins with, by the matrix's shape."""
    rng = generator(SEED, TrainingStream.COMPRESSION, 0, 0, START)
    shapes = ((7, 5), (6, 7)) if rank > 1 else ((7, 5), (6, 7), (3, 6))
    return {(n, m): torch.from_numpy(rng.standard_normal((m, rank), "float32")) for n, m in shapes}


def train_by_ddp(worker: int, folder: str) -> None:
    from torch.distributed.algorithms.ddp_comm_hooks import powerSGD_hook as power_sgd
    from torch.nn.parallel import DistributedDataParallel

    torch.set_num_threads(1)
    dist.init_process_group("gloo", f"file://{folder}/meet", rank=worker, world_size=WORKERS)
    for rank in RANKS:
        model = DistributedDataParallel(initial(integer_seed(SEED, TrainingStream.MODEL)))
        state = power_sgd.PowerSGDState(
            None, matrix_approximation_rank=rank, start_powerSGD_iter=START, min_compression_rate=1
        )
        known = first_factors(rank)

        def hook(state: Any, bucket: Any, known: Any = known, rank: int = rank) -> Any:
            if state.iter == START:  # it orthogonalises the factors of the last iteration
                matrices = [
                    gradient for gradient in bucket.gradients() if tuple(gradient.shape) in known
                ]
                factors = [known[tuple(matrix.shape)].flatten() for matrix in matrices]
                state.q_memory_dict[bucket.index()] = torch.cat(factors)
                state.p_memory_dict[bucket.index()] = torch.empty(rank * sum(map(len, matrices)))
            return power_sgd.powerSGD_hook(state, bucket)

        hook.__annotations__.clear()  # which are texts, and it looks for types
        model.register_comm_hook(state, hook)
        optimizer = torch.optim.SGD(model.parameters(), LR)
        x, y = map(torch.from_numpy, data()[:2])
        sampler = batches(worker)
        for _ in range(UPDATES):
            chosen = torch.from_numpy(sampler.next())
            optimizer.zero_grad()
            cross_entropy(model(x[chosen]), y[chosen]).backward()
            optimizer.step()
        flat = torch.cat([t.detach().flatten() for t in model.parameters()])
        np.save(f"{folder}/{worker}-{rank}.npy", flat.numpy())
    dist.destroy_process_group()


@pytest.mark.slow
def test_it_is_that_of_pytorch_in_two_processes(tmp_path: Path) -> None:
    def parameters(compress: str | None) -> np.ndarray:
        config = TrainConfig(
            model="small_network:model",
            data="small_network:data",
            algorithm="ssgd",
            topology="all-reduce",
            workers=WORKERS,
            batch=BATCH,
            shards="iid",
            lr=LR,
            updates=UPDATES,
            compress=compress,
        )
        found: np.ndarray = train(config, SEED).parameters.numpy()
        return found

    start_processes(train_by_ddp, (str(tmp_path),), WORKERS, start_method="spawn")
    for rank in RANKS:
        expected = np.load(tmp_path / f"0-{rank}.npy")
        found = parameters(f"powersgd(rank={rank}, start={START})")
        np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-4)
        apart = np.abs(parameters(None) - expected).max()
        assert apart > 20 * np.abs(found - expected).max()
