"""Transformers. Attention has as many heads as this rank's share of the weights."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention, silu

_DROPOUT = 0.1
_VOCABULARY = 50_257


def _draw_weights(model: nn.Module) -> None:
    for module in model.modules():
        if isinstance(module, nn.Linear | nn.Embedding):
            nn.init.normal_(module.weight, std=0.02)
        if isinstance(module, nn.Linear) and module.bias is not None:
            nn.init.zeros_(module.bias)


class GPT(nn.Module):
    """Radford et al. 2019: pre-norm transformer decoders with learned positions.

    Tokens [batch, length] to logits [batch, length, vocabulary]; no longer than `context`.
    """

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
        self.h = nn.ModuleList(GPTBlock(heads, width) for _ in range(layers))
        self.ln_f = nn.LayerNorm(width)
        self.lm_head = nn.Linear(width, vocabulary, bias=False)
        _draw_weights(self)
        self.lm_head.weight = self.wte.weight

    def forward(self, tokens: Tensor) -> Tensor:
        positions = torch.arange(tokens.shape[1], device=tokens.device)
        x = self.dropout(self.wte(tokens) + self.wpe(positions))
        for block in self.h:
            x = block(x)
        logits: Tensor = self.lm_head(self.ln_f(x))
        return logits


class GPTBlock(nn.Module):
    """Attention, then a perceptron, each with a shortcut."""

    def __init__(self, heads: int, width: int) -> None:
        super().__init__()
        self.ln_1 = nn.LayerNorm(width)
        self.attention = GPTAttention(heads, width)
        self.ln_2 = nn.LayerNorm(width)
        self.mlp = GPTPerceptron(width)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.ln_1(x))
        out: Tensor = x + self.mlp(self.ln_2(x))
        return out


class GPTAttention(nn.Module):
    """Causal self-attention."""

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


class GPTPerceptron(nn.Module):
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


def _gpt(
    layers: int, heads: int, width: int, context: int = 1024
) -> Callable[[Sequence[int]], GPT]:
    return lambda shape: GPT(layers, heads, width, context=max(context, *shape))


gpt2 = _gpt(12, 12, 768)  # 124 million parameters
gpt2_medium = _gpt(24, 16, 1024)  # 355 million
gpt2_large = _gpt(36, 20, 1280)  # 774 million
gpt2_xl = _gpt(48, 25, 1600)  # 1.6 billion
gpt_small = _gpt(6, 6, 384, context=128)  # 30 million, two thirds the vocabulary's: for one core


def bert_base(shape: Sequence[int]) -> BERT:
    """110 million parameters."""
    return BERT(layers=12, heads=12, width=768, context=max(512, *shape))


class BERT(nn.Module):
    """Devlin et al. 2019, with the head that predicts masked words: post-norm encoders.

    Tokens [batch, length] to logits [batch, length, vocabulary].
    """

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
        self.encoder = nn.ModuleList(BERTEncoder(heads, width) for _ in range(layers))
        self.head = nn.Sequential(
            nn.Linear(width, width), nn.GELU(), nn.LayerNorm(width, eps=1e-12)
        )
        self.decoder = nn.Linear(width, vocabulary)
        _draw_weights(self)
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


class BERTEncoder(nn.Module):
    """Attention, then a perceptron, each added to its input and normalised."""

    def __init__(self, heads: int, width: int) -> None:
        super().__init__()
        self.attention = BERTAttention(heads, width)
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


class BERTAttention(nn.Module):
    """Self-attention in both directions."""

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


def llama_7b(shape: Sequence[int]) -> Llama:
    """Every head of queries has keys and values of its own."""
    return Llama(32, width=4096, inner=11_008, heads=32, groups=32, context=max(shape))


def llama_70b(shape: Sequence[int]) -> Llama:
    """Eight heads of queries share keys and values."""
    return Llama(80, width=8192, inner=28_672, heads=64, groups=8, context=max(shape))


class Llama(nn.Module):
    """Touvron et al. 2023: root-mean-square norms, rotary positions, grouped queries.

    Tokens [batch, length] to logits [batch, length, vocabulary]; no longer than `context`.
    `inner` is the width inside the perceptron, `groups` the number of heads of keys and values.
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
        self.layers = nn.ModuleList(LlamaBlock(width, inner, heads, groups) for _ in range(layers))
        self.norm = nn.RMSNorm(width, eps=1e-5)
        self.head = nn.Linear(width, vocabulary, bias=False)
        _draw_weights(self)
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


class LlamaBlock(nn.Module):
    """Attention, then a gated perceptron, each normalised before and with a shortcut."""

    def __init__(self, width: int, inner: int, heads: int, groups: int) -> None:
        super().__init__()
        self.norm_1 = nn.RMSNorm(width, eps=1e-5)
        self.attention = LlamaAttention(width, heads, groups)
        self.norm_2 = nn.RMSNorm(width, eps=1e-5)
        self.mlp = LlamaPerceptron(width, inner)

    def forward(self, x: Tensor, rotation: tuple[Tensor, Tensor]) -> Tensor:
        x = x + self.attention(self.norm_1(x), rotation)
        out: Tensor = x + self.mlp(self.norm_2(x))
        return out


class LlamaAttention(nn.Module):
    """Causal self-attention."""

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


class LlamaPerceptron(nn.Module):
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
    frequencies = 10_000.0 ** -(torch.arange(0, width, 2) / width)
    angles = torch.outer(torch.arange(context), frequencies).repeat(1, 2)
    return angles.cos(), angles.sin()


def _rotated(x: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
    """Return heads [batch, heads, length, width], each pair of halves turned by its angle."""
    first, second = x.chunk(2, dim=-1)
    return x * cosine + torch.cat((-second, first), dim=-1) * sine


def _repeated(x: Tensor, times: int) -> Tensor:
    """Return heads [batch, groups, length, width] with each repeated `times` in a row."""
    if times == 1:
        return x
    return x.unsqueeze(2).expand(-1, -1, times, -1, -1).flatten(1, 2)
