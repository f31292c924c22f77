"""Models for the tests of captures, as a user would write them: `tiny_models:gpt`."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from paracosm.models import Workload
from paracosm.models.images import BasicBlock, ResNet
from paracosm.models.language import GPT, Llama

Module = nn.Module
Fed = tuple[Module, Tensor]


def embedding() -> Module:
    """Takes token ids, and says nothing of them."""
    return nn.Sequential(nn.Embedding(64, 8), nn.Linear(8, 64))


def token_ids(batch: int, shape: tuple[int, ...]) -> Fed:
    return embedding(), torch.randint(64, (batch, *shape))


def gpt(batch: int) -> Workload:
    """Two layers of attention; 8 tokens of 64."""
    model = GPT(layers=2, heads=4, width=32, context=8, vocabulary=64)
    tokens, targets = torch.randint(64, (2, batch, 8)).unbind()

    def loss(logits: Tensor) -> Tensor:
        return nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten())

    return Workload(model, (tokens,), loss, batch)


def llama(batch: int) -> Fed:
    """Two layers in which two heads share keys and values."""
    model = Llama(2, width=32, inner=64, heads=4, groups=2, context=8, vocabulary=64)
    return model, torch.randint(64, (batch, 8))


def resnet(classes: int = 10) -> Module:
    """One block a stage."""
    return ResNet(BasicBlock, (1, 1, 1, 1), channels=3, classes=classes)


def with_loss() -> tuple[Module, Module]:
    """A loss of outputs and labels."""
    return nn.Linear(4, 3), nn.CrossEntropyLoss()


def demanding(classes: int) -> Module:
    """A model that cannot do without a number of classes."""
    return nn.Linear(4, classes)


def gru(batch: int) -> Fed:
    """A model that returns a tuple."""
    return nn.GRU(4, 8, num_layers=2, dropout=0.5, batch_first=True), torch.randn(batch, 5, 4)


def lstm(batch: int) -> Fed:
    model = nn.LSTM(4, 8, num_layers=2, bidirectional=True, batch_first=True)
    return model, torch.randn(batch, 5, 4)


def bag(batch: int) -> Fed:
    """A bag of embeddings with sparse gradients, 1000 rows of 16."""
    return nn.EmbeddingBag(1000, 16, sparse=True, mode="sum"), torch.randint(1000, (batch, 3))


def two_layers(batch: int) -> Fed:
    """Two blocks of two layers each, 8 -> 16 -> 8 without biases, and nothing else."""
    return TwoLayers(), torch.randn(batch, 8)


class TwoLayers(nn.Module):
    tensor_parallel: Mapping[str, str] = {"blocks.*.up": "column", "blocks.*.down": "row"}

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(Wide() for _ in range(2))

    def forward(self, x: Tensor) -> Tensor:
        for block in self.blocks:
            x = block(x)
        return x


class Wide(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up = nn.Linear(8, 16, bias=False)
        self.down = nn.Linear(16, 8, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.down(torch.relu(self.up(x)))
        return out


def linear() -> Module:
    return nn.Linear(4, 2)


def stubborn() -> Fed:
    """Takes no batch, and makes three examples."""
    return nn.Linear(4, 2), torch.randn(3, 4)


def failing(batch: int) -> Module:
    raise ValueError(f"no model\nfor {batch}")


def nothing() -> int:
    return 3


def sparse(batch: int) -> Fed:
    return nn.Embedding(10, 4, sparse=True), torch.randint(10, (batch, 3))


def frozen(batch: int) -> Fed:
    return nn.Linear(4, 2).requires_grad_(False), torch.randn(batch, 4)


def misspelt(batch: int) -> Fed:
    model = nn.Sequential(nn.Linear(4, 2))
    model.tensor_parallel = {"0": "colum"}  # type: ignore[assignment]
    return model, torch.randn(batch, 4)


def values(batch: int) -> Fed:
    """Looks at what is in a tensor, which fake ones have not."""

    class Looks(nn.Linear):
        def forward(self, x: Tensor) -> Tensor:
            return super().forward(x) if x.sum().item() > 0 else x

    return Looks(4, 2), torch.randn(batch, 4)
