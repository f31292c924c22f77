"""BERT (Devlin et al. 2019) with the head that predicts masked words: post-norm encoders."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention

__all__ = ["BERT", "bert_base"]

_DROPOUT = 0.1


def bert_base(shape: Sequence[int]) -> BERT:
    """110 million parameters."""
    return BERT(layers=12, heads=12, width=768, context=max(512, *shape))


class BERT(nn.Module):
    """Tokens [batch, length] to logits [batch, length, vocabulary]."""

    tensor_parallel: Mapping[str, str] = {
        "encoder.*.attention": "input",
        "encoder.*.attention.query": "column",
        "encoder.*.attention.key": "column",
        "encoder.*.attention.value": "column",
        "encoder.*.attention.out": "row",
        "encoder.*.up": "column",
        "encoder.*.down": "row",
    }

    def __init__(
        self, layers: int, heads: int, width: int, context: int, vocabulary: int = 30_522
    ) -> None:
        super().__init__()
        self.divisible_by_ranks = {"heads": heads}
        self.words = nn.Embedding(vocabulary, width)
        self.positions = nn.Embedding(context, width)
        self.segments = nn.Embedding(2, width)
        self.norm = nn.LayerNorm(width, eps=1e-12)
        self.dropout = nn.Dropout(_DROPOUT)
        self.encoder = nn.ModuleList(Encoder(heads, width) for _ in range(layers))
        self.head = nn.Sequential(
            nn.Linear(width, width), nn.GELU(), nn.LayerNorm(width, eps=1e-12)
        )
        self.decoder = nn.Linear(width, vocabulary)
        for module in self.modules():
            if isinstance(module, nn.Linear | nn.Embedding):
                nn.init.normal_(module.weight, std=0.02)
            if isinstance(module, nn.Linear):
                nn.init.zeros_(module.bias)
        self.decoder.weight = self.words.weight

    def forward(self, tokens: Tensor) -> Tensor:
        positions = torch.arange(tokens.shape[1], device=tokens.device)
        segments = torch.zeros_like(tokens)
        x = self.words(tokens) + self.segments(segments) + self.positions(positions)
        x = self.dropout(self.norm(x))
        for encoder in self.encoder:
            x = encoder(x)
        logits: Tensor = self.decoder(self.head(x))
        return logits


class Encoder(nn.Module):
    """Attention, then a perceptron, each added to what it got and normalised."""

    def __init__(self, heads: int, width: int) -> None:
        super().__init__()
        self.attention = Attention(heads, width)
        self.norm_1 = nn.LayerNorm(width, eps=1e-12)
        self.up = nn.Linear(width, 4 * width)
        self.act = nn.GELU()
        self.down = nn.Linear(4 * width, width)
        self.norm_2 = nn.LayerNorm(width, eps=1e-12)
        self.dropout = nn.Dropout(_DROPOUT)

    def forward(self, x: Tensor) -> Tensor:
        x = self.norm_1(x + self.dropout(self.attention(x)))
        out: Tensor = self.norm_2(x + self.dropout(self.down(self.act(self.up(x)))))
        return out


class Attention(nn.Module):
    """Self-attention in both directions; as many heads as this rank's share of the weights has."""

    def __init__(self, heads: int, width: int) -> None:
        super().__init__()
        self.head_width = width // heads
        self.query = nn.Linear(width, width)
        self.key = nn.Linear(width, width)
        self.value = nn.Linear(width, width)
        self.out = nn.Linear(width, width)
        self.dropout = nn.Dropout(_DROPOUT)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (
            layer(x).unflatten(-1, (-1, self.head_width)).transpose(1, 2)
            for layer in (self.query, self.key, self.value)
        )
        drop = self.dropout.p if self.training else 0.0
        y = scaled_dot_product_attention(q, k, v, dropout_p=drop)
        out: Tensor = self.out(y.transpose(1, 2).flatten(2))
        return out
