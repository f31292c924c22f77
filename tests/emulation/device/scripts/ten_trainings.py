"""Ten trainings, of which one iteration each is run, told apart by the steps of one optimizer."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

BATCH, LENGTH, WIDTH, HEADS, LAYERS, VOCABULARY = 2, 64, 32, 4, 2, 50


def mlp(device: str) -> Tensor:
    model = nn.Sequential(nn.Linear(40, 64), nn.ReLU(), nn.Linear(64, 10)).to(device)
    return model(torch.ones(16, 40, device=device)).sum()


def convolutions(device: str) -> Tensor:
    model = nn.Sequential(
        nn.Conv2d(3, 16, 3, stride=2, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.Conv2d(16, 8, 3)
    ).to(device)
    return model(torch.ones(4, 3, 32, 32, device=device)).sum()


def autoencoder(device: str) -> Tensor:
    model = nn.Sequential(nn.Conv1d(2, 8, 5, stride=2), nn.ConvTranspose1d(8, 2, 5, stride=2))
    return model.to(device)(torch.ones(4, 2, 65, device=device)).sum()


class Block(nn.Module):
    def __init__(self, is_causal: bool) -> None:
        super().__init__()
        self.is_causal = is_causal
        self.norm, self.attends = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 3 * WIDTH)
        self.projects = nn.Linear(WIDTH, WIDTH)
        self.widens, self.narrows = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        batch, length, _ = x.shape
        query, key, value = (
            part.view(batch, length, HEADS, -1).transpose(1, 2)
            for part in self.attends(self.norm(x)).split(WIDTH, 2)
        )
        seen = functional.scaled_dot_product_attention(query, key, value, is_causal=self.is_causal)
        x = x + self.projects(seen.transpose(1, 2).reshape(x.shape))
        return x + self.narrows(functional.gelu(self.widens(x)))


def transformer(device: str, is_causal: bool = True, recomputes: bool = False) -> Tensor:
    embedding = nn.Embedding(VOCABULARY, WIDTH, device=device)
    blocks = nn.ModuleList(Block(is_causal) for _ in range(LAYERS)).to(device)
    head = nn.Linear(WIDTH, VOCABULARY, bias=False, device=device)
    head.weight = embedding.weight
    x = embedding(torch.ones(BATCH, LENGTH, dtype=torch.int64, device=device))
    for block in blocks:
        x = checkpoint(block, x, use_reentrant=False) if recomputes else block(x)
    return head(x).sum()


def recomputing(device: str) -> Tensor:
    return transformer(device, recomputes=True)


def seeing_all(device: str) -> Tensor:
    return transformer(device, is_causal=False)


def in_short_numbers(device: str) -> Tensor:
    with torch.autocast("cuda", dtype=torch.bfloat16):
        return transformer(device).float()


def recommender(device: str) -> Tensor:
    table = nn.Embedding(100, 16, device=device)
    met = table(torch.ones(8, 5, dtype=torch.int64, device=device))
    return torch.bmm(met, met.transpose(1, 2)).sum()


def adapted(device: str) -> Tensor:
    """A frozen layer and a trained one of low rank beside it, behind a layer that is trained."""
    first, frozen = nn.Linear(24, 48, device=device), nn.Linear(48, 48, device=device)
    frozen.requires_grad_(False)
    down, up = nn.Linear(48, 4, bias=False), nn.Linear(4, 48, bias=False)
    x = first(torch.ones(32, 24, device=device))
    return (frozen(x) + up.to(device)(down.to(device)(x))).sum()


def experts(device: str) -> Tensor:
    """Six experts of two layers, each with five tokens."""
    inner = nn.Parameter(torch.ones(6, 16, 32, device=device))
    outer = nn.Parameter(torch.ones(6, 32, 16, device=device))
    tokens = torch.ones(6, 5, 16, device=device, requires_grad=True)
    return torch.einsum("ech,ehd->ecd", torch.baddbmm(inner[:, :5, :], tokens, inner), outer).sum()


TRAININGS: tuple[Callable[[str], Tensor], ...] = (
    *(mlp, convolutions, autoencoder, transformer, recomputing, seeing_all, in_short_numbers),
    *(recommender, adapted, experts),
)


def main() -> None:
    counted = torch.optim.SGD([nn.Parameter(torch.ones(1, device="cuda"))])
    for training in TRAININGS:
        training("cuda").backward()
        counted.step()


if __name__ == "__main__":
    main()
