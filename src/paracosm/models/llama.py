"""Llama 2 (Touvron et al. 2023): root-mean-square norms, rotary positions, grouped queries."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention, silu

__all__ = ["Llama", "llama_7b", "llama_70b"]


def llama_7b(shape: Sequence[int]) -> Llama:
    """Every head of queries has keys and values of its own."""
    return Llama(32, width=4096, inner=11_008, heads=32, groups=32, context=max(shape))


def llama_70b(shape: Sequence[int]) -> Llama:
    """Eight heads of queries share keys and values."""
    return Llama(80, width=8192, inner=28_672, heads=64, groups=8, context=max(shape))


class Llama(nn.Module):
    """Tokens [batch, length] to logits [batch, length, vocabulary]; no longer than `context`.

    Args:
        layers: number of blocks.
        width: of the residual stream.
        inner: width inside the perceptron.
        heads: of queries.
        groups: heads of keys and values.
        context: tokens that there are positions for.
        vocabulary: number of tokens.
    """

    tensor_parallel: Mapping[str, str] = {
        "layers.*.attention": "input",
        "layers.*.attention.wq": "column",
        "layers.*.attention.wk": "column",
        "layers.*.attention.wv": "column",
        "layers.*.attention.wo": "row",
        "layers.*.mlp": "input",
        "layers.*.mlp.gate": "column",
        "layers.*.mlp.up": "column",
        "layers.*.mlp.down": "row",
    }

    def __init__(
        self,
        layers: int,
        width: int,
        inner: int,
        heads: int,
        groups: int,
        context: int,
        vocabulary: int = 32_000,
    ) -> None:
        super().__init__()
        self.divisible_by_ranks = {"heads": heads, "heads of keys and values": groups}
        self.embedding = nn.Embedding(vocabulary, width)
        self.layers = nn.ModuleList(Block(width, inner, heads, groups) for _ in range(layers))
        self.norm = nn.RMSNorm(width, eps=1e-5)
        self.head = nn.Linear(width, vocabulary, bias=False)
        for module in self.modules():
            if isinstance(module, nn.Linear | nn.Embedding):
                nn.init.normal_(module.weight, std=0.02)
        cosine, sine = _rotations(context, width // heads)
        self.register_buffer("cosine", cosine, persistent=False)
        self.register_buffer("sine", sine, persistent=False)

    def forward(self, tokens: Tensor) -> Tensor:
        length = tokens.shape[1]
        rotation = self.get_buffer("cosine")[:length], self.get_buffer("sine")[:length]
        x = self.embedding(tokens)
        for layer in self.layers:
            x = layer(x, rotation)
        logits: Tensor = self.head(self.norm(x))
        return logits


class Block(nn.Module):
    """Attention, then a gated perceptron, each normalised before and beside its shortcut."""

    def __init__(self, width: int, inner: int, heads: int, groups: int) -> None:
        super().__init__()
        self.norm_1 = nn.RMSNorm(width, eps=1e-5)
        self.attention = Attention(width, heads, groups)
        self.norm_2 = nn.RMSNorm(width, eps=1e-5)
        self.mlp = Perceptron(width, inner)

    def forward(self, x: Tensor, rotation: tuple[Tensor, Tensor]) -> Tensor:
        x = x + self.attention(self.norm_1(x), rotation)
        out: Tensor = x + self.mlp(self.norm_2(x))
        return out


class Attention(nn.Module):
    """Causal self-attention; as many heads as this rank's share of the weights has."""

    def __init__(self, width: int, heads: int, groups: int) -> None:
        super().__init__()
        self.head_width = width // heads
        self.sharing = heads // groups
        self.wq = nn.Linear(width, width, bias=False)
        self.wk = nn.Linear(width, groups * self.head_width, bias=False)
        self.wv = nn.Linear(width, groups * self.head_width, bias=False)
        self.wo = nn.Linear(width, width, bias=False)

    def forward(self, x: Tensor, rotation: tuple[Tensor, Tensor]) -> Tensor:
        q, k, v = (
            weight(x).unflatten(-1, (-1, self.head_width)).transpose(1, 2)
            for weight in (self.wq, self.wk, self.wv)
        )
        q, k = _rotated(q, *rotation), _rotated(k, *rotation)
        k, v = _repeated(k, self.sharing), _repeated(v, self.sharing)
        y = scaled_dot_product_attention(q, k, v, is_causal=True)
        out: Tensor = self.wo(y.transpose(1, 2).flatten(2))
        return out


class Perceptron(nn.Module):
    """SwiGLU (Shazeer 2020)."""

    def __init__(self, width: int, inner: int) -> None:
        super().__init__()
        self.gate = nn.Linear(width, inner, bias=False)
        self.up = nn.Linear(width, inner, bias=False)
        self.down = nn.Linear(inner, width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.down(silu(self.gate(x)) * self.up(x))
        return out


def _rotations(context: int, width: int) -> tuple[Tensor, Tensor]:
    """Return cosines and sines [context, width] of the angles of Su et al. (2021)."""
    frequencies = 10_000.0 ** -(torch.arange(0, width, 2) / width)
    angles = torch.outer(torch.arange(context), frequencies).repeat(1, 2)
    return angles.cos(), angles.sin()


def _rotated(x: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
    """Return heads [batch, heads, length, width], each pair of halves turned by its angle."""
    first, second = x.chunk(2, dim=-1)
    return x * cosine + torch.cat((-second, first), dim=-1) * sine


def _repeated(x: Tensor, times: int) -> Tensor:
    """Return heads [batch, groups, length, width] with every one of them `times` in a row."""
    if times == 1:
        return x
    return x.unsqueeze(2).expand(-1, -1, times, -1, -1).flatten(1, 2)
