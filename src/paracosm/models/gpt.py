"""GPT-2 (Radford et al. 2019): pre-norm transformer decoders with learned positions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention

__all__ = ["GPT", "gpt2", "gpt2_large", "gpt2_medium", "gpt2_xl", "gpt_small"]

_DROPOUT = 0.1
_VOCABULARY = 50_257


def gpt2(shape: Sequence[int]) -> GPT:
    """124 million parameters."""
    return GPT(layers=12, heads=12, width=768, context=max(1024, *shape))


def gpt2_medium(shape: Sequence[int]) -> GPT:
    """355 million parameters."""
    return GPT(layers=24, heads=16, width=1024, context=max(1024, *shape))


def gpt2_large(shape: Sequence[int]) -> GPT:
    """774 million parameters."""
    return GPT(layers=36, heads=20, width=1280, context=max(1024, *shape))


def gpt2_xl(shape: Sequence[int]) -> GPT:
    """1.6 billion parameters."""
    return GPT(layers=48, heads=25, width=1600, context=max(1024, *shape))


def gpt_small(shape: Sequence[int]) -> GPT:
    """30 million parameters, two thirds of them the vocabulary's: for one core."""
    return GPT(layers=6, heads=6, width=384, context=max(128, *shape))


class GPT(nn.Module):
    """Tokens [batch, length] to logits [batch, length, vocabulary]; no longer than `context`."""

    tensor_parallel: Mapping[str, str] = {
        "h.*.attention.qkv": "column",
        "h.*.attention.out": "row",
        "h.*.mlp.up": "column",
        "h.*.mlp.down": "row",
    }

    def __init__(
        self, layers: int, heads: int, width: int, context: int, vocabulary: int = _VOCABULARY
    ) -> None:
        super().__init__()
        self.divisible_by_ranks = {"heads": heads}
        self.wte = nn.Embedding(vocabulary, width)
        self.wpe = nn.Embedding(context, width)
        self.dropout = nn.Dropout(_DROPOUT)
        self.h = nn.ModuleList(Block(heads, width) for _ in range(layers))
        self.ln_f = nn.LayerNorm(width)
        self.lm_head = nn.Linear(width, vocabulary, bias=False)
        for module in self.modules():
            if isinstance(module, nn.Linear | nn.Embedding):
                nn.init.normal_(module.weight, std=0.02)
            if isinstance(module, nn.Linear) and module.bias is not None:
                nn.init.zeros_(module.bias)
        self.lm_head.weight = self.wte.weight

    def forward(self, tokens: Tensor) -> Tensor:
        positions = torch.arange(tokens.shape[1], device=tokens.device)
        x = self.dropout(self.wte(tokens) + self.wpe(positions))
        for block in self.h:
            x = block(x)
        logits: Tensor = self.lm_head(self.ln_f(x))
        return logits


class Block(nn.Module):
    """Attention, then a perceptron, each beside its shortcut."""

    def __init__(self, heads: int, width: int) -> None:
        super().__init__()
        self.ln_1 = nn.LayerNorm(width)
        self.attention = Attention(heads, width)
        self.ln_2 = nn.LayerNorm(width)
        self.mlp = Perceptron(width)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.ln_1(x))
        out: Tensor = x + self.mlp(self.ln_2(x))
        return out


class Attention(nn.Module):
    """Causal self-attention; as many heads as this rank's share of `qkv` has."""

    def __init__(self, heads: int, width: int) -> None:
        super().__init__()
        self.head_width = width // heads
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.dropout = nn.Dropout(_DROPOUT)

    def forward(self, x: Tensor) -> Tensor:
        heads = self.qkv(x).unflatten(-1, (3, -1, self.head_width))  # [batch, length, 3, heads, w]
        q, k, v = (part.transpose(1, 2) for part in heads.unbind(2))
        drop = self.dropout.p if self.training else 0.0
        y = scaled_dot_product_attention(q, k, v, dropout_p=drop, is_causal=True)
        out: Tensor = self.dropout(self.out(y.transpose(1, 2).flatten(2)))
        return out


class Perceptron(nn.Module):
    """Four times as wide inside."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.up = nn.Linear(width, 4 * width)
        self.act = nn.GELU(approximate="tanh")
        self.down = nn.Linear(4 * width, width)
        self.dropout = nn.Dropout(_DROPOUT)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.dropout(self.down(self.act(self.up(x))))
        return out
