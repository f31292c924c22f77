"""Small training scripts of several families, for a processor: `python small_trainings.py gpt`.

Each is what it is called, trained on random data: layers and optimizers of PyTorch, models of timm,
nanoGPT's configuration for a processor (batch 12, 64 tokens, 4 layers of 4 heads and width 128),
the same with gradients accumulated, and a recommender with tables of embeddings.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.optim import SGD, AdamW

__all__ = ["TRAININGS"]

Step = Callable[[], float]


def mlp() -> Step:
    model = nn.Sequential(
        *(nn.Linear(784, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 10))
    )
    return _classifier(model, SGD(model.parameters(), lr=0.01, momentum=0.9), (128, 784), 10)


def cnn() -> Step:
    layers: list[nn.Module] = []
    for inputs, outputs in ((3, 32), (32, 64)):
        layers += [
            nn.Conv2d(inputs, outputs, 3, padding=1),
            nn.BatchNorm2d(outputs),
            nn.ReLU(),
            nn.MaxPool2d(2),
        ]
    head = [nn.Flatten(), nn.Linear(64 * 64, 128), nn.ReLU(), nn.Dropout(0.25), nn.Linear(128, 10)]
    model = nn.Sequential(*layers, *head)
    return _classifier(model, AdamW(model.parameters(), lr=1e-3), (64, 3, 32, 32), 10)


def resnet18() -> Step:
    import timm

    model = timm.create_model("resnet18", num_classes=10)
    optimizer = SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-4)
    return _classifier(model, optimizer, (8, 3, 64, 64), 10)


def vit() -> Step:
    import timm

    model = timm.create_model("vit_tiny_patch16_224", num_classes=100, img_size=96)
    return _classifier(model, AdamW(model.parameters(), lr=1e-3), (8, 3, 96, 96), 100)


def gpt() -> Step:
    return _language_model(micro_batches=1)


def gpt_accumulated() -> Step:
    return _language_model(micro_batches=4)


def dlrm() -> Step:
    batch, tables, rows, width = 256, 8, 20_000, 32
    model = Recommender(tables, rows, width)
    optimizer = SGD(model.parameters(), lr=0.1)
    numbers, clicked = torch.randn(batch, 13), torch.rand(batch)
    items = [torch.randint(0, rows, (batch * 10,)) for _ in range(tables)]
    offsets = torch.arange(0, batch * 10, 10)

    def step() -> float:
        optimizer.zero_grad()
        likely = model(numbers, items, offsets)
        loss = functional.binary_cross_entropy_with_logits(likely, clicked)
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        return loss.item()

    return step


def _classifier(
    model: nn.Module, optimizer: torch.optim.Optimizer, shape: tuple[int, ...], classes: int
) -> Step:
    images, labels = torch.randn(shape), torch.randint(0, classes, shape[:1])

    def step() -> float:
        optimizer.zero_grad()
        loss = functional.cross_entropy(model(images), labels)
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        return loss.item()

    return step


def _language_model(micro_batches: int) -> Step:
    model = LanguageModel(vocabulary=65, width=128, layers=4, heads=4, length=64)
    optimizer = AdamW(model.parameters(), lr=1e-3)
    tokens = torch.randint(0, 65, (12, 65))

    def step() -> float:
        total = 0.0
        for _ in range(micro_batches):
            loss = model(tokens[:, :-1], tokens[:, 1:]) / micro_batches
            total += loss.item()
            loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return total

    return step


class Block(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.before, self.between = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attends, self.projects = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.widens, self.narrows = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        parts = self.attends(self.before(x)).split(width, 2)
        query, key, value = (
            part.view(batch, length, self.heads, -1).transpose(1, 2) for part in parts
        )
        seen = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.projects(seen.transpose(1, 2).reshape(batch, length, width))
        return x + self.narrows(functional.gelu(self.widens(self.between(x))))


class LanguageModel(nn.Module):
    def __init__(self, vocabulary: int, width: int, layers: int, heads: int, length: int) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(vocabulary, width), nn.Embedding(length, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, vocabulary, bias=False)
        self.head.weight = self.tokens.weight

    def forward(self, tokens: Tensor, following: Tensor) -> Tensor:
        x = self.tokens(tokens) + self.places(torch.arange(tokens.shape[1]))
        for block in self.blocks:
            x = block(x)
        likely = self.head(self.norm(x))
        return functional.cross_entropy(likely.flatten(0, 1), following.reshape(-1))


class Recommender(nn.Module):
    """Tables of embeddings, two networks, and products of all pairs between them (DLRM)."""

    def __init__(self, tables: int, rows: int, width: int) -> None:
        super().__init__()
        self.tables = nn.ModuleList(nn.EmbeddingBag(rows, width, mode="sum") for _ in range(tables))
        self.bottom = nn.Sequential(nn.Linear(13, 128), nn.ReLU(), nn.Linear(128, width), nn.ReLU())
        pairs = tables * (tables + 1) // 2
        self.top = nn.Sequential(nn.Linear(width + pairs, 256), nn.ReLU(), nn.Linear(256, 1))
        self.pairs = torch.tril_indices(tables + 1, tables + 1, -1)

    def forward(self, numbers: Tensor, items: list[Tensor], offsets: Tensor) -> Tensor:
        dense = self.bottom(numbers)
        looked_up = [
            table(of_table, offsets) for table, of_table in zip(self.tables, items, strict=True)
        ]
        stacked = torch.stack([dense, *looked_up], 1)
        products = torch.bmm(stacked, stacked.transpose(1, 2))
        met = products[:, self.pairs[0], self.pairs[1]]
        made: Tensor = self.top(torch.cat([dense, met], 1)).squeeze(1)
        return made


TRAININGS: dict[str, Callable[[], Step]] = {
    "mlp": mlp,
    "cnn": cnn,
    "resnet18": resnet18,
    "vit": vit,
    "gpt": gpt,
    "gpt accumulated": gpt_accumulated,
    "dlrm": dlrm,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("training", choices=TRAININGS)
    parser.add_argument("--seconds", type=float, default=0.0, help="and print those of each step")
    asked = parser.parse_args()
    torch.manual_seed(0)
    step = TRAININGS[asked.training]()
    for _ in range(10):
        step()
    end = time.monotonic() + asked.seconds
    while time.monotonic() < end:
        begin = time.thread_time()
        step()
        print(time.thread_time() - begin)


if __name__ == "__main__":
    main()
