"""The sizes of a decoder-only transformer, and those of models that people train."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

from paracosm.errors import InputError, unknown

Recipe = Literal["megatron", "compiled", "eager"]


@dataclass(frozen=True)
class Transformer:
    """A decoder: a norm before each half of a layer, attention, then a perceptron or experts.

    `recipe` says which kernels run and in which precision. "megatron": those of Megatron-LM in
    2021, in half precision, with attention that writes its scores, dropout, and gradients reduced
    in half precision. "compiled" and "eager": flash attention, no dropout, gradients reduced in
    single precision; what is element by element is fused by a compiler, or an op at a time.

    Raises:
        InputError: a size that is not positive; sizes that do not divide each other; experts
            without a choice of them; a model that is none of the recipe's.
    """

    layers: int
    width: int  # of the residual stream ("hidden size")
    heads: int  # of attention
    sequence: int  # tokens of an example
    vocabulary: int = 50_257
    kv_heads: int = 0  # of keys and values; as many as `heads` where it is 0
    inner: int = 0  # width of the perceptron, or of an expert; four times `width` where it is 0
    gated: bool = False  # whether the perceptron has a gate (SwiGLU): three matrices, not two
    rotary: bool = False  # positions by rotating queries and keys, not from a table
    rms: bool = False  # norms by the root mean square, not layer norms
    bias: bool = True  # of linear maps and norms
    tied: bool = True  # whether the head's weights are the embedding's
    fused_qkv: bool = True  # whether one product makes queries, keys and values
    experts: int = 0  # in each layer; 0 for a perceptron
    active: int = 0  # experts that a token goes to
    shared: int = 0  # experts besides that every token goes to
    recipe: Recipe = "megatron"

    def __post_init__(self) -> None:
        for name in ("layers", "width", "heads", "sequence", "vocabulary"):
            if getattr(self, name) < 1:
                raise InputError(
                    f"transformer: {name} must be 1 or more, not {getattr(self, name)}"
                )
        if self.width % self.heads:
            raise InputError(
                f"transformer: {self.heads} heads do not divide a width of {self.width}"
            )
        object.__setattr__(self, "kv_heads", self.kv_heads or self.heads)
        object.__setattr__(self, "inner", self.inner or 4 * self.width)
        if self.heads % self.kv_heads:
            raise InputError(
                f"transformer: {self.kv_heads} heads of keys do not divide {self.heads} heads"
            )
        if self.experts and not 1 <= self.active <= self.experts:
            raise InputError(
                f"transformer: active must be 1 to {self.experts} experts, not {self.active}"
            )
        modern = self.gated or self.rotary or self.rms or self.experts or not self.tied
        if self.recipe == "megatron" and (
            modern or not self.bias or not self.fused_qkv or self.kv_heads != self.heads
        ):
            raise InputError(
                "transformer: recipe megatron is of GPT alone: layer norms, biases, a table of "
                "positions, a perceptron without a gate; recipe compiled takes all others"
            )

    @property
    def head_width(self) -> int:
        return self.width // self.heads

    @property
    def matrices(self) -> int:
        """Matrices of a perceptron or an expert."""
        return 3 if self.gated else 2

    @property
    def attention_parameters(self) -> int:
        """Of one layer: queries, keys, values, output, their biases."""
        rows = self.width + 2 * self.kv_heads * self.head_width
        biases = rows + self.width if self.bias else 0
        return self.width * (rows + self.width) + biases

    @property
    def expert_parameters(self) -> int:
        """Of one expert, or of the perceptron."""
        biases = (self.matrices - 1) * self.inner + self.width if self.bias else 0
        return self.matrices * self.width * self.inner + biases

    @property
    def norm_parameters(self) -> int:
        return self.width if self.rms or not self.bias else 2 * self.width

    @property
    def layer_parameters(self) -> int:
        """Of one layer; of a GPT 12 h^2 weights, 9 h biases, two layer norms of 2 h."""
        router = self.experts * self.width
        count = (self.experts + self.shared) or 1
        inner = router + count * self.expert_parameters
        return self.attention_parameters + inner + 2 * self.norm_parameters

    @property
    def parameters(self) -> int:
        """Of the model; a head that shares the embedding's weights has none of its own."""
        tables = self.vocabulary * (1 if self.tied else 2) + (0 if self.rotary else self.sequence)
        return self.layers * self.layer_parameters + tables * self.width + self.norm_parameters

    def padded_vocabulary(self, tensor: int) -> int:
        """Return the rows of the embedding on `tensor` ranks together: with Megatron a multiple of
        128 on each (`make-vocab-size-divisible-by`), else as many on each."""
        multiple = (128 if self.recipe == "megatron" else 1) * tensor
        return -(-self.vocabulary // multiple) * multiple

    def split(self, tensor: int) -> None:
        """Raise InputError unless `tensor` ranks can share each layer."""
        if tensor < 1 or self.heads % tensor:
            best = nearest_divisor(self.heads, tensor)
            raise InputError(
                f"tensor={tensor} ranks do not divide {self.heads} heads; {best} would"
            )

    def cut(self, stages: int) -> None:
        """Raise InputError unless `stages` of a pipeline can have as many layers each."""
        if stages < 1 or self.layers % stages:
            best = nearest_divisor(self.layers, stages)
            raise InputError(f"{stages} stages do not divide {self.layers} layers; {best} would")


def nearest_divisor(number: int, wanted: int) -> int:
    """Return the divisor of a number that is nearest to the one that is wanted."""
    fitting = [count for count in range(1, number + 1) if number % count == 0]
    return min(fitting, key=lambda count: abs(count - wanted))


def architecture(name: str, sequence: int | None = None) -> Transformer:
    """Return the sizes of a model of `ARCHITECTURES`, with examples of so many tokens.

    Raises:
        InputError: a name that is unknown, with the nearest; no token.
    """
    if name not in ARCHITECTURES:
        raise unknown("transformer", name, ARCHITECTURES)
    found = ARCHITECTURES[name]
    return found if sequence is None else replace(found, sequence=sequence)


def _gpt(layers: int, width: int, heads: int, sequence: int, vocabulary: int) -> Transformer:
    return Transformer(layers, width, heads, sequence, vocabulary, recipe="compiled")


def _opt(layers: int, width: int, heads: int) -> Transformer:
    return replace(_gpt(layers, width, heads, 2048, 50_272), fused_qkv=False)


def _llama(
    *sizes: int, kv: int = 0, inner: int, vocabulary: int = 32_000, **experts: int
) -> Transformer:
    """Return a decoder with rotary positions, RMS norms, SwiGLU, and no biases."""
    layers, width, heads, sequence = sizes
    return Transformer(
        *(layers, width, heads, sequence, vocabulary, kv, inner),
        gated=True,
        rotary=True,
        rms=True,
        bias=False,
        tied=False,
        fused_qkv=False,
        recipe="compiled",
        **experts,
    )


ARCHITECTURES: Mapping[str, Transformer] = {
    # Radford et al., "Language Models are Unsupervised Multitask Learners", 2019, table 2.
    "gpt2": _gpt(12, 768, 12, 1024, 50_257),
    "gpt2-medium": _gpt(24, 1024, 16, 1024, 50_257),
    "gpt2-large": _gpt(36, 1280, 20, 1024, 50_257),
    "gpt2-xl": _gpt(48, 1600, 25, 1024, 50_257),
    # Brown et al., "Language Models are Few-Shot Learners", 2020, table 2.1; 13 B has a width of
    # 5140 there, which 40 heads of 128 do not make.
    "gpt3-2.7b": _gpt(32, 2560, 32, 2048, 50_257),
    "gpt3-6.7b": _gpt(32, 4096, 32, 2048, 50_257),
    "gpt3-13b": _gpt(40, 5120, 40, 2048, 50_257),
    "gpt3-175b": _gpt(96, 12_288, 96, 2048, 50_257),
    # Zhang et al., "OPT: Open Pre-trained Transformer Language Models", 2022, table 1.
    "opt-125m": _opt(12, 768, 12),
    "opt-350m": _opt(24, 1024, 16),
    "opt-1.3b": _opt(24, 2048, 32),
    "opt-2.7b": _opt(32, 2560, 32),
    "opt-6.7b": _opt(32, 4096, 32),
    "opt-13b": _opt(40, 5120, 40),
    "opt-30b": _opt(48, 7168, 56),
    "opt-66b": _opt(64, 9216, 72),
    "opt-175b": _opt(96, 12_288, 96),
    # MosaicML, llm-foundry, scripts/train/yamls/pretrain/mpt-*.yaml, April 2024.
    "mpt-125m": _gpt(12, 768, 12, 2048, 50_368),
    "mpt-350m": _gpt(24, 1024, 16, 2048, 50_368),
    "mpt-760m": _gpt(24, 1536, 12, 2048, 50_368),
    "mpt-1b": _gpt(24, 2048, 16, 2048, 50_368),
    "mpt-3b": _gpt(32, 2560, 20, 2048, 50_368),
    "mpt-7b": _gpt(32, 4096, 32, 2048, 50_368),
    "mpt-13b": _gpt(40, 5120, 40, 2048, 50_368),
    "mpt-30b": _gpt(48, 7168, 56, 2048, 50_368),
    "mpt-70b": _gpt(80, 8192, 64, 2048, 50_368),
    # Touvron et al., "Llama 2: Open Foundation and Fine-Tuned Chat Models", 2023, section 2.2.
    "llama-7b": _llama(32, 4096, 32, 4096, inner=11_008),
    "llama-13b": _llama(40, 5120, 40, 4096, inner=13_824),
    "llama-70b": _llama(80, 8192, 64, 4096, kv=8, inner=28_672),
    # Llama Team, "The Llama 3 Herd of Models", 2024, table 3; of 8192 tokens, section 3.4.
    "llama-8b": _llama(32, 4096, 32, 8192, kv=8, inner=14_336, vocabulary=128_256),
    "llama3-70b": _llama(80, 8192, 64, 8192, kv=8, inner=28_672, vocabulary=128_256),
    "llama-405b": _llama(126, 16_384, 128, 8192, kv=8, inner=53_248, vocabulary=128_256),
    # Jiang et al., "Mixtral of Experts", 2024, table 1; of 8x22B the published configuration.
    "mixtral-8x7b": _llama(32, 4096, 32, 4096, kv=8, inner=14_336, experts=8, active=2),
    "mixtral-8x22b": _llama(56, 6144, 48, 4096, kv=8, inner=16_384, experts=8, active=2),
    # Dai et al., "DeepSeekMoE", 2024, section 5.1.2; its first, dense layer as the others.
    "deepseek-moe-16b": _llama(
        *(28, 2048, 16, 4096),
        inner=1408,
        vocabulary=102_400,
        experts=64,
        active=6,
        shared=2,
    ),
}
"""Name -> sizes, each family with its source."""
